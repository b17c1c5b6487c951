// One device's program, function by function: every value becomes its share.
#include "dialects/graph/Build.h"
#include "mlir/IR/IRMapping.h"
#include "passes/sharding/Factors.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Resharder.h"
#include "passes/sharding/Sharding.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_PARTITIONTOLOCAL
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

namespace {
class Partitioner {
public:
  Partitioner(ModuleOp module, dist::MeshOp meshOp, int64_t device)
      : module(module), mesh(meshOp), at(mesh.coordinatesOf(device)) {}

  LogicalResult run() {
    // Before anything changes: a share of a program may be pointwise.
    SmallVector<func::FuncOp> programs, updates;
    for (auto function : module.getOps<func::FuncOp>())
      (isPointwise(function) ? updates : programs).push_back(function);
    for (func::FuncOp function : programs)
      if (failed(partition(function)))
        return failure();
    for (func::FuncOp function : updates)
      if (!used.contains(function.getName()))
        function.erase();
    return success();
  }

private:
  LogicalResult partition(func::FuncOp function) {
    Block &global = function.getBody().front();
    auto *local = new Block;
    SmallVector<Type> inputs, results;
    for (BlockArgument argument : global.getArguments()) {
      inputs.push_back(localType(argument));
      map.map(argument, local->addArgument(inputs.back(), argument.getLoc()));
    }
    auto ret = cast<func::ReturnOp>(global.getTerminator());
    for (Value value : ret.getOperands())
      results.push_back(localType(value));
    function.getBody().push_back(local);
    OpBuilder builder(module.getContext());
    builder.setInsertionPointToStart(local);
    if (failed(partition(global, builder)))
      return failure();
    annotate(function, global);
    global.dropAllReferences();
    global.dropAllDefinedValueUses();
    global.erase();
    function.setType(FunctionType::get(module.getContext(), inputs, results));
    return success();
  }

  // What the host needs to know of state and inputs: their shape all together.
  // All of a function at once: its attributes are one.
  void annotate(func::FuncOp function, Block &global) {
    SmallVector<DictionaryAttr> arguments, results;
    for (BlockArgument argument : global.getArguments())
      arguments.push_back(
          annotated(function, function.getArgAttrDict(argument.getArgNumber()),
                    argument));
    for (auto [i, value] :
         llvm::enumerate(global.getTerminator()->getOperands()))
      results.push_back(
          annotated(function, function.getResultAttrDict(i), value));
    function.setAllArgAttrs(arguments);
    function.setAllResultAttrs(results);
  }

  DictionaryAttr annotated(func::FuncOp function, DictionaryAttr attrs,
                           Value global) {
    NamedAttrList list(attrs);
    if (!list.get(dist::kShardingAttr))
      return list.getDictionary(module.getContext());
    if (function.isPublic())
      list.set(dist::kGlobalShapeAttr, shapeAttr(tensorType(global)));
    else
      list.erase(dist::kShardingAttr);
    return list.getDictionary(module.getContext());
  }

  Attribute shapeAttr(RankedTensorType type) {
    return DenseI64ArrayAttr::get(module.getContext(), type.getShape());
  }

  LogicalResult partition(Block &global, OpBuilder &builder) {
    for (Operation &op : global)
      if (failed(partitionOp(op, builder)))
        return failure();
    return success();
  }

  LogicalResult partitionOp(Operation &op, OpBuilder &builder) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op)) {
      graph::Emitter emit(builder, op.getLoc());
      Placement from = placementOf(reshard.getInput()),
                to = placementOf(reshard.getResult());
      Value local = Resharder(emit, mesh, at)
                        .reshard(map.lookup(reshard.getInput()), from, to);
      if (!local)
        return failure();
      map.map(reshard.getResult(), local);
      return success();
    }
    if (auto loop = dyn_cast<graph::LoopOp>(op))
      return partitionLoop(loop, builder);
    if (isPointwiseCall(&op))
      return partitionPointwise(cast<func::CallOp>(op), builder);
    if (isa<func::ReturnOp, graph::YieldOp, func::CallOp>(op)) {
      Operation *clone = builder.clone(op, map);
      retype(op, clone);
      return success();
    }
    LocalOp local{&op,      builder,
                  map,      mesh,
                  at,       [this](Value value) { return placementOf(value); },
                  exchanges};
    return emitLocal(local);
  }

  void retype(Operation &op, Operation *clone) {
    clone->removeAttr(dist::kShardingsAttr);
    for (auto [result, local] : llvm::zip(op.getResults(), clone->getResults()))
      local.setType(localType(result));
  }

  LogicalResult partitionLoop(graph::LoopOp loop, OpBuilder &builder) {
    SmallVector<Value> inits = llvm::map_to_vector(
        loop.getInits(), [&](Value init) { return map.lookup(init); });
    LogicalResult done = success();
    auto local = builder.create<graph::LoopOp>(
        loop.getLoc(), loop.getTrip(), inits,
        [&](OpBuilder &inner, Location, Value induction, ValueRange carried) {
          map.map(loop.getInduction(), induction);
          for (auto [from, to] : llvm::zip(loop.getCarried(), carried))
            map.map(from, to);
          done = partition(loop.getBody().front(), inner);
        });
    map.map(loop.getResults(), local.getResults());
    return done;
  }

  // Equal calls of an update share one function, named by the shape.
  LogicalResult partitionPointwise(func::CallOp call, OpBuilder &builder) {
    SmallVector<Value> operands;
    std::optional<RankedTensorType> shaped;
    bool same = true;
    for (Value operand : call.getOperands()) {
      operands.push_back(map.lookup(operand));
      auto type = tensorType(operands.back());
      same &= type == operand.getType();
      if (type.getRank() > 0)
        shaped = type;
    }
    auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
    std::string name = call.getCallee().str();
    if (!same) {
      name +=
          ".local." + llvm::join(llvm::map_range(shaped->getShape(),
                                                 [](int64_t size) {
                                                   return std::to_string(size);
                                                 }),
                                 "x");
      if (!module.lookupSymbol(name))
        specialize(callee, name, shaped->getShape());
    }
    used.insert(name);
    auto target = module.lookupSymbol<func::FuncOp>(name);
    auto local = builder.create<func::CallOp>(call.getLoc(), target, operands);
    map.map(call.getResults(), local.getResults());
    return success();
  }

  void specialize(func::FuncOp callee, StringRef name,
                  ArrayRef<int64_t> shape) {
    OpBuilder builder(callee);
    auto clone = cast<func::FuncOp>(builder.clone(*callee));
    clone.setName(name);
    auto localOf = [&](Type type) -> Type {
      auto tensor = cast<RankedTensorType>(type);
      return tensor.getRank() == 0 ? tensor : tensor.clone(shape);
    };
    for (BlockArgument argument : clone.getArguments())
      argument.setType(localOf(argument.getType()));
    clone.getBody().walk([&](Operation *op) {
      for (Value result : op->getResults())
        result.setType(localOf(result.getType()));
      if (auto constant = dyn_cast<graph::ConstantOp>(op))
        constant.setValueAttr(
            resizeSplat(constant.getValue(), tensorType(constant.getResult())));
    });
    auto types = [&](TypeRange range) {
      return llvm::map_to_vector(range, localOf);
    };
    clone.setType(FunctionType::get(module.getContext(),
                                    types(callee.getArgumentTypes()),
                                    types(callee.getResultTypes())));
  }

  // As the attribute says of whoever makes the value; whole without one.
  Placement placementOf(Value value) {
    auto type = tensorType(value);
    dist::ShardingAttr attr;
    auto ofResult = [&](Operation *op, unsigned i) {
      if (auto all = op->getAttrOfType<ArrayAttr>(dist::kShardingsAttr))
        attr = cast<dist::ShardingAttr>(all[i]);
    };
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      unsigned i = argument.getArgNumber();
      Operation *parent = argument.getOwner()->getParentOp();
      if (auto function = dyn_cast<func::FuncOp>(parent))
        attr = function.getArgAttrOfType<dist::ShardingAttr>(
            i, dist::kShardingAttr);
      else if (i > 0)
        ofResult(parent, i - 1);
    } else if (auto reshard = value.getDefiningOp<dist::ReshardOp>()) {
      attr = reshard.getTo();
    } else {
      ofResult(value.getDefiningOp(), cast<OpResult>(value).getResultNumber());
    }
    Placement placement =
        attr ? Placement::fromAttr(attr, type, mesh) : Placement::whole(type);
    placement.normalize(mesh);
    return placement;
  }

  RankedTensorType localType(Value value) {
    return placementOf(value).localType(tensorType(value), mesh, at);
  }

  ModuleOp module;
  Mesh mesh;
  Coordinates at;
  IRMapping map;
  RowExchanges exchanges;
  llvm::StringSet<> used; ///< pointwise functions that local code calls
};

/// The offsets that programs ask for, as one input of each.
class OffsetBinder {
public:
  explicit OffsetBinder(ModuleOp module) : module(module) {}

  void run() {
    module.walk([&](dist::OffsetOp op) { number(op); });
    if (entries.empty())
      return;
    module->setAttr(dist::kOffsetsAttr,
                    ArrayAttr::get(module.getContext(), entries.getArrayRef()));
    type = RankedTensorType::get({static_cast<int64_t>(entries.size())},
                                 IntegerType::get(module.getContext(), 32));
    for (auto function : module.getOps<func::FuncOp>())
      if (!isPointwise(function))
        bind(function);
  }

private:
  void number(dist::OffsetOp op) {
    SmallVector<dist::AxisRefAttr> axes(
        op.getAxes().getAsRange<dist::AxisRefAttr>());
    auto factor = dist::FactorAttr::get(op.getContext(), op.getSize(), axes);
    entries.insert(factor);
    numbers[op] = std::distance(entries.begin(), llvm::find(entries, factor));
  }

  void bind(func::FuncOp function) {
    unsigned position = function.getNumArguments();
    DictionaryAttr attrs;
    if (function.isPublic())
      attrs = DictionaryAttr::get(
          function.getContext(),
          NamedAttribute(
              StringAttr::get(function.getContext(), graph::kInputAttr),
              StringAttr::get(function.getContext(), dist::kOffsetsInput)));
    function.insertArgument(position, type, attrs, function.getLoc());
    Value all = function.getArgument(position);
    function.walk([&](dist::OffsetOp op) {
      OpBuilder builder(op);
      graph::Emitter emit(builder, op.getLoc());
      Value one = emit.slice(all, {numbers.lookup(op)}, {1});
      op.replaceAllUsesWith(emit.reshape(one, {}));
      op.erase();
    });
    function.walk([&](func::CallOp call) {
      if (!isPointwiseCall(call))
        call.getOperandsMutable().append(all);
    });
  }

  ModuleOp module;
  RankedTensorType type;
  llvm::SetVector<Attribute> entries;
  llvm::DenseMap<Operation *, int64_t> numbers;
};

struct PartitionToLocal
    : tessera::impl::PartitionToLocalBase<PartitionToLocal> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto meshes = module.getOps<dist::MeshOp>();
    if (meshes.empty())
      return;
    if (device < 0 || device >= (*meshes.begin()).getDeviceCount()) {
      module.emitError("device ") << device << " is not in the mesh of "
                                  << (*meshes.begin()).getDeviceCount();
      return signalPassFailure();
    }
    if (failed(Partitioner(module, *meshes.begin(), device).run()))
      return signalPassFailure();
    OffsetBinder(module).run();
  }
};
} // namespace
