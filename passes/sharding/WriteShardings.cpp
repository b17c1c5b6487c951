#include "passes/sharding/WriteShardings.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

namespace {
/// Attributes, and a reshard wherever an op wants a value otherwise than it is.
class Writer {
public:
  Writer(const Shardings &shardings, const Mesh &mesh, MLIRContext *context)
      : shardings(shardings), mesh(mesh), context(context) {}

  void write(func::FuncOp function) {
    writeBlock(function.getBody().front(), function.isPublic());
    // All of a function at once: its attributes are one.
    SmallVector<DictionaryAttr> arguments, results;
    for (BlockArgument argument : function.getArguments())
      arguments.push_back(with(function.getArgAttrDict(argument.getArgNumber()),
                               attrOf(shardings.of(argument))));
    Operation *ret = function.getBody().front().getTerminator();
    for (OpOperand &operand : ret->getOpOperands())
      results.push_back(
          with(function.getResultAttrDict(operand.getOperandNumber()),
               attrOf(returned[&operand])));
    function.setAllArgAttrs(arguments);
    function.setAllResultAttrs(results);
  }

private:
  DictionaryAttr with(DictionaryAttr attrs, dist::ShardingAttr sharding) const {
    NamedAttrList list(attrs);
    if (sharding)
      list.set(dist::kShardingAttr, sharding);
    return list.getDictionary(context);
  }

  dist::ShardingAttr attrOf(Placement placement) const {
    placement.normalize(mesh);
    return placement.isWhole() ? dist::ShardingAttr()
                               : placement.toAttr(context, mesh);
  }

  dist::ShardingAttr fullAttr(Placement placement) const {
    placement.normalize(mesh);
    return placement.toAttr(context, mesh);
  }

  void writeBlock(Block &block, bool atEachUse) {
    SmallVector<Operation *> ops =
        llvm::map_to_vector(block, [](Operation &op) { return &op; });
    for (Operation *op : ops) {
      for (OpOperand &operand : op->getOpOperands()) {
        Placement wanted = shardings.wanted(operand);
        if (isa<func::ReturnOp>(op))
          returned[&operand] = wanted;
        place(operand, wanted, atEachUse);
      }
      if (auto loop = dyn_cast<graph::LoopOp>(op))
        writeBlock(loop.getBody().front(), false);
      writeResults(op);
    }
  }

  void writeResults(Operation *op) {
    SmallVector<Attribute> attrs;
    bool any = false;
    for (Value result : op->getResults()) {
      attrs.push_back(fullAttr(shardings.of(result)));
      any |= static_cast<bool>(attrOf(shardings.of(result)));
    }
    if (any)
      op->setAttr(dist::kShardingsAttr, ArrayAttr::get(context, attrs));
    OpBuilder builder(context);
    builder.setInsertionPointAfter(op);
    for (Value result : op->getResults())
      if (const Placement *settled = shardings.settled(result))
        if (fullAttr(*settled) != fullAttr(shardings.of(result))) {
          auto reshard = builder.create<dist::ReshardOp>(
              op->getLoc(), result.getType(), result, fullAttr(*settled));
          current[result] = reshard;
        }
  }

  // Gathered parameters live from one use to the next block's: those of a
  // program's arguments are gathered for each use.
  void place(OpOperand &operand, const Placement &wanted, bool atEachUse) {
    Value value = operand.get();
    const Placement *settled = shardings.settled(value);
    dist::ShardingAttr have =
                           fullAttr(settled ? *settled : shardings.of(value)),
                       want = fullAttr(wanted);
    Value now = current.lookup(value) ? current.lookup(value) : value;
    if (have == want) {
      operand.set(now);
      return;
    }
    bool isArgument = isa<BlockArgument>(value);
    Value &known = moved[{value, want, operand.getOwner()->getBlock()}];
    if (!known || (isArgument && atEachUse)) {
      OpBuilder builder(operand.getOwner());
      if (Operation *def = now.getDefiningOp();
          def && def->getBlock() == operand.getOwner()->getBlock())
        builder.setInsertionPointAfter(def);
      known =
          isSplat(value)
              ? made(builder, value, want)
              : builder.create<dist::ReshardOp>(operand.getOwner()->getLoc(),
                                                value.getType(), now, want);
    }
    operand.set(known);
  }

  // A constant of one number is made where it is wanted; of zeros it is also
  // the sum.
  Value made(OpBuilder &builder, Value like, dist::ShardingAttr attr) const {
    Operation *copy = builder.clone(*like.getDefiningOp());
    copy->setAttr(dist::kShardingsAttr,
                  ArrayAttr::get(context, ArrayRef<Attribute>(attr)));
    return copy->getResult(0);
  }

  const Shardings &shardings;
  const Mesh &mesh;
  MLIRContext *context;
  llvm::DenseMap<Value, Value> current; ///< settled results
  llvm::DenseMap<std::tuple<Value, Attribute, Block *>, Value> moved;
  llvm::DenseMap<OpOperand *, Placement> returned;
};
} // namespace

void sharding::writeShardings(ModuleOp module, const Shardings &shardings,
                              const Mesh &mesh) {
  SmallVector<Attribute> axes(mesh.axes.begin(), mesh.axes.end());
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  builder.create<dist::MeshOp>(module.getLoc(), mesh.name.getValue(),
                               builder.getArrayAttr(axes));
  Writer writer(shardings, mesh, module.getContext());
  for (auto function : module.getOps<func::FuncOp>())
    if (!isPointwise(function))
      writer.write(function);
}
