#include "passes/sharding/WriteShardings.h"
#include "dialects/graph/GraphExchangeOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

namespace {
/// Writes attributes, and a reshard wherever an op requires another placement.
class Writer {
public:
  Writer(const Shardings &shardings, const Mesh &mesh, MLIRContext *context)
      : shardings(shardings), mesh(mesh), context(context),
        shardingName(StringAttr::get(context, dist::kShardingAttr)),
        shardingsName(StringAttr::get(context, dist::kShardingsAttr)) {}

  void write(func::FuncOp function) {
    writeBlock(function.getBody().front());
    // Sets all attributes of a function at once: each change copies them.
    SmallVector<DictionaryAttr> arguments, results;
    for (BlockArgument argument : function.getArguments())
      arguments.push_back(with(function.getArgAttrDict(argument.getArgNumber()),
                               attrOf(shardings.of(argument))));
    Operation *ret = function.getBody().front().getTerminator();
    for (OpOperand &operand : ret->getOpOperands())
      results.push_back(
          with(function.getResultAttrDict(operand.getOperandNumber()),
               attrOf(shardings.wanted(operand))));
    function.setAllArgAttrs(arguments);
    function.setAllResultAttrs(results);
  }

private:
  DictionaryAttr with(DictionaryAttr attrs, dist::ShardingAttr sharding) const {
    if (!sharding)
      return attrs ? attrs : DictionaryAttr::get(context);
    NamedAttrList list(attrs);
    list.set(shardingName, sharding);
    return list.getDictionary(context);
  }

  /// Null if the value is replicated.
  dist::ShardingAttr attrOf(const Placement &placement) {
    dist::ShardingAttr full = fullAttr(placement);
    return placement.isWhole() ? dist::ShardingAttr() : full;
  }

  dist::ShardingAttr fullAttr(const Placement &placement) {
    dist::ShardingAttr &attr = attrs[&placement];
    if (!attr) {
      Placement normal = placement;
      normal.normalize(mesh);
      attr = normal.toAttr(context, mesh);
    }
    return attr;
  }

  void writeBlock(Block &block) {
    SmallVector<Operation *> ops =
        llvm::map_to_vector(block, [](Operation &op) { return &op; });
    for (Operation *op : ops) {
      unsigned number = shardings.classes.stepOf(op);
      const Congruence::Step &step = shardings.classes.step(number);
      const Plan &plan = shardings.plan(number);
      for (OpOperand &operand : op->getOpOperands())
        place(operand, *plan.wanted[step.useFor(operand.getOperandNumber())]);
      if (auto loop = dyn_cast<graph::LoopOp>(op))
        writeBlock(loop.getBody().front());
      writeResults(op, plan);
    }
  }

  /// Null if all results are replicated.
  ArrayAttr resultsAttr(const Plan &plan) {
    auto [known, isNew] = plans.try_emplace(&plan);
    if (!isNew)
      return known->second;
    SmallVector<Attribute> attrs;
    bool any = false;
    for (const Placement *made : plan.made) {
      attrs.push_back(fullAttr(*made));
      any |= !made->isWhole();
    }
    return known->second = any ? ArrayAttr::get(context, attrs) : ArrayAttr();
  }

  void writeResults(Operation *op, const Plan &plan) {
    if (op->getNumResults() == 0)
      return;
    if (ArrayAttr attr = resultsAttr(plan))
      op->setAttr(shardingsName, attr);
    OpBuilder builder(context);
    builder.setInsertionPointAfter(op);
    for (Value result : op->getResults()) {
      const Placement &made = shardings.of(result),
                      &used = shardings.asUsed(result);
      if (&made == &used || fullAttr(made) == fullAttr(used))
        continue;
      current[result] = builder.create<dist::ReshardOp>(
          op->getLoc(), result.getType(), result, fullAttr(used));
    }
  }

  // The op before which a value is moved for a use. Not in a loop of further
  // rounds, whose number not all devices may have: before it, as for the first
  // round.
  static Operation *siteOf(OpOperand &operand) {
    Operation *site = operand.getOwner();
    while (graph::isOverflowLoop(site->getParentOp()) &&
           operand.get().getParentBlock() != site->getBlock())
      site = site->getParentOp();
    return site;
  }

  // Where the value is moved for uses at `site`.
  static OpBuilder builderFor(Operation *site, Value value, MoveScope scope) {
    Operation *def = value.getDefiningOp();
    OpBuilder builder(site);
    Block *block = value.getParentBlock();
    if (scope == MoveScope::use ||
        (scope == MoveScope::block && (!def || block != site->getBlock())))
      return builder;
    if (def)
      builder.setInsertionPointAfter(def);
    else
      builder.setInsertionPointToStart(block);
    return builder;
  }

  void place(OpOperand &operand, const Placement &wanted) {
    Value value = operand.get();
    Operation *site = siteOf(operand);
    auto settled = current.find(value);
    Value now = settled == current.end() ? value : settled->second;
    const Placement &used = shardings.asUsed(value);
    if (&used == &wanted || fullAttr(used) == fullAttr(wanted)) {
      if (now != value)
        operand.set(now);
      return;
    }
    dist::ShardingAttr want = fullAttr(wanted);
    MoveScope scope = shardings.moveScope(value);
    Block *block =
        scope == MoveScope::program ? value.getParentBlock() : site->getBlock();
    Value &known = moved[{value, want, block}];
    if (!known || (scope == MoveScope::use && site == operand.getOwner())) {
      OpBuilder builder = builderFor(site, now, scope);
      known = isSplat(value) ? made(builder, value, want)
                             : builder.create<dist::ReshardOp>(
                                   site->getLoc(), value.getType(), now, want);
    }
    operand.set(known);
  }

  // A splat is created with the required placement; zeros may also be partial.
  Value made(OpBuilder &builder, Value like, dist::ShardingAttr attr) const {
    Operation *copy = builder.clone(*like.getDefiningOp());
    copy->setAttr(dist::kShardingsAttr,
                  ArrayAttr::get(context, ArrayRef<Attribute>(attr)));
    return copy->getResult(0);
  }

  const Shardings &shardings;
  const Mesh &mesh;
  MLIRContext *context;
  StringAttr shardingName, shardingsName;
  llvm::DenseMap<Value, Value> current; ///< results resharded to `asUsed`
  llvm::DenseMap<std::tuple<Value, Attribute, Block *>, Value> moved;
  llvm::DenseMap<const Placement *, dist::ShardingAttr> attrs;
  llvm::DenseMap<const Plan *, ArrayAttr> plans;
};
} // namespace

void sharding::writeShardings(ModuleOp module, const Shardings &shardings,
                              const Mesh &mesh) {
  SmallVector<Attribute> axes(mesh.axes.begin(), mesh.axes.end());
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  builder.create<dist::MeshOp>(module.getLoc(), mesh.name.getValue(),
                               builder.getArrayAttr(axes));
  Writer writer(shardings, mesh, module.getContext());
  const Callees &functions = shardings.classes.factors.functions();
  for (auto function : module.getOps<func::FuncOp>())
    if (!functions.isPointwise(function))
      writer.write(function);
}
