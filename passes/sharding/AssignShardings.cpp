// Writes down what Strategy and Shardings decide.
#include "passes/sharding/Sharding.h"
#include "passes/sharding/Strategy.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_ASSIGNSHARDINGS
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

// "data=2,tensor=4". All ranks of CPU meshes are processes of one machine until
// a cluster says otherwise.
static FailureOr<Mesh> parseMesh(ModuleOp module, StringRef text) {
  SmallVector<dist::AxisAttr> axes;
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    auto [name, number] = part.split('=');
    int64_t size = 0;
    if (name.empty() || number.getAsInteger(10, size) || size < 1)
      return module.emitError("mesh '")
             << text << "' is not a list of axes and sizes such as "
             << "data=2,tensor=4";
    axes.push_back(dist::AxisAttr::get(module.getContext(), name, size,
                                       dist::LinkTier::memory));
  }
  return Mesh(StringAttr::get(module.getContext(), "mesh"), axes);
}

namespace {
/// A mesh, and what its axes cut.
struct Choice {
  Mesh mesh;
  Strategy strategy;
};
} // namespace

// Of all ways to write the number as data × tensor, the one with the lowest
// estimate; the larger data axis where two are equal.
static FailureOr<Choice> chooseMesh(ModuleOp module, const Factors &factors,
                                    int64_t devices, ZeroStage zero) {
  std::optional<Choice> best;
  double least = 0;
  for (int64_t tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor)
      continue;
    FailureOr<Mesh> mesh =
        parseMesh(module, "data=" + std::to_string(devices / tensor) +
                              ",tensor=" + std::to_string(tensor));
    FailureOr<Strategy> strategy = chooseStrategy(module, factors, *mesh, zero);
    if (failed(strategy))
      return failure();
    Shardings shardings(factors, *mesh, *strategy);
    if (failed(shardings.build(module)))
      return failure();
    double seconds = estimate(module, *mesh, shardings);
    if (!best || seconds < least)
      best = Choice{*mesh, *strategy}, least = seconds;
  }
  return *best;
}

static FailureOr<Choice> choose(ModuleOp module, const Factors &factors,
                                StringRef text, ZeroStage zero) {
  int64_t devices = 0;
  if (StringRef number = text; number.consume_front("auto=")) {
    if (number.getAsInteger(10, devices) || devices < 1)
      return module.emitError("mesh '")
             << text << "' names no number of devices";
    return chooseMesh(module, factors, devices, zero);
  }
  FailureOr<Mesh> mesh = parseMesh(module, text);
  if (failed(mesh))
    return failure();
  FailureOr<Strategy> strategy = chooseStrategy(module, factors, *mesh, zero);
  if (failed(strategy))
    return failure();
  return Choice{*mesh, *strategy};
}

namespace {
/// Attributes, and a reshard wherever an op wants a value otherwise than it is.
class Writer {
public:
  Writer(const Shardings &shardings, const Mesh &mesh, MLIRContext *context)
      : shardings(shardings), mesh(mesh), context(context) {}

  void write(func::FuncOp function) {
    for (BlockArgument argument : function.getArguments())
      if (auto attr = attrOf(shardings.of(argument)))
        function.setArgAttr(argument.getArgNumber(), dist::kShardingAttr, attr);
    writeBlock(function.getBody().front(), function.isPublic());
    Operation *ret = function.getBody().front().getTerminator();
    for (OpOperand &operand : ret->getOpOperands())
      if (auto attr = attrOf(returned[&operand]))
        function.setResultAttr(operand.getOperandNumber(), dist::kShardingAttr,
                               attr);
  }

private:
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
              ? zeros(builder, value, want)
              : builder.create<dist::ReshardOp>(operand.getOwner()->getLoc(),
                                                value.getType(), now, want);
    }
    operand.set(known);
  }

  // Zeros need not move, and are also the sum of zeros.
  Value zeros(OpBuilder &builder, Value like, dist::ShardingAttr attr) const {
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

struct AssignShardings : tessera::impl::AssignShardingsBase<AssignShardings> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mesh.empty())
      return;
    if (zero < 0 || zero > 3) {
      module.emitError("zero is 0, 1, 2 or 3, got: ") << zero;
      return signalPassFailure();
    }
    Factors factors;
    if (failed(factors.build(module)))
      return signalPassFailure();
    FailureOr<Choice> choice =
        choose(module, factors, mesh, static_cast<ZeroStage>(zero.getValue()));
    if (failed(choice))
      return signalPassFailure();
    const Mesh &grid = choice->mesh;
    Shardings shardings(factors, grid, choice->strategy);
    if (failed(shardings.build(module)))
      return signalPassFailure();
    SmallVector<Attribute> axes(grid.axes.begin(), grid.axes.end());
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    builder.create<dist::MeshOp>(module.getLoc(), grid.name.getValue(),
                                 builder.getArrayAttr(axes));
    Writer writer(shardings, grid, &getContext());
    for (auto function : module.getOps<func::FuncOp>())
      if (!isPointwise(function))
        writer.write(function);
  }
};
} // namespace
