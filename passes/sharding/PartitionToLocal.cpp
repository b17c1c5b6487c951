// Makes one device's program, function by function: every value becomes its
// local shard.
#include "dialects/graph/Build.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/IRMapping.h"
#include "passes/sharding/Factors.h"
#include "passes/sharding/LocalCollectiveMatmul.h"
#include "passes/sharding/Resharder.h"
#include "passes/sharding/Sharding.h"
#include "llvm/ADT/StringExtras.h"

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
  Partitioner(ModuleOp module, dist::MeshOp meshOp, int64_t device,
              bool padsExchanges)
      : module(module), padsExchanges(padsExchanges), callees(module),
        mesh(meshOp), at(mesh.coordinatesOf(device)), shares(mesh, at),
        products(mesh, at, shares, map) {}

  LogicalResult run() {
    // Before anything changes: a local program may look pointwise.
    SmallVector<func::FuncOp> programs, updates;
    for (auto function : module.getOps<func::FuncOp>())
      (callees.isPointwise(function) ? updates : programs).push_back(function);
    for (func::FuncOp function : programs)
      if (failed(partition(function)))
        return failure();
    for (func::FuncOp function : updates)
      if (!used.contains(function))
        function.erase();
    return success();
  }

private:
  LogicalResult partition(func::FuncOp function) {
    Block &global = function.getBody().front();
    auto *local = new Block;
    SmallVector<Type> inputs, results;
    for (BlockArgument argument : global.getArguments()) {
      inputs.push_back(shares.typeOf(argument));
      map.map(argument, local->addArgument(inputs.back(), argument.getLoc()));
    }
    auto ret = cast<func::ReturnOp>(global.getTerminator());
    for (Value value : ret.getOperands())
      results.push_back(shares.typeOf(value));
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

  // The host needs the global shapes of state and inputs. Sets all attributes
  // of a function at once, because each change copies them.
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
    for (Operation &op : global) {
      if (products.emit(&op, builder))
        continue;
      products.settle(&op, builder);
      if (failed(partitionOp(op, builder)))
        return failure();
    }
    return success();
  }

  LogicalResult partitionOp(Operation &op, OpBuilder &builder) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op)) {
      graph::Emitter emit(builder, op.getLoc());
      const Placement &from = shares.placementOf(reshard.getInput()),
                      &to = shares.placementOf(reshard.getResult());
      Value local = Resharder(emit, mesh, at)
                        .reshard(map.lookup(reshard.getInput()), from, to);
      if (!local)
        return failure();
      map.map(reshard.getResult(), local);
      return success();
    }
    if (auto loop = dyn_cast<graph::LoopOp>(op))
      return partitionLoop(loop, builder);
    if (callees.isPointwiseCall(&op))
      return partitionPointwise(cast<func::CallOp>(op), builder);
    if (isa<func::ReturnOp, graph::YieldOp, func::CallOp>(op)) {
      shares.clone(&op, builder, map);
      return success();
    }
    LocalOp local{&op,    builder,   map,           mesh, at,
                  shares, exchanges, padsExchanges, round};
    return emitLocal(local);
  }

  // Rounds of an exchange after the first: a loop that counts them, or nothing
  // if no rows are exchanged, or always in one round.
  LogicalResult partitionRounds(graph::LoopOp loop, OpBuilder &builder) {
    graph::SendRowsOp send =
        *loop.getBody().front().getOps<graph::SendRowsOp>().begin();
    LocalOp local{send, builder, map,       mesh,
                  at,   shares,  exchanges, padsExchanges};
    OverflowRounds rounds = emitRounds(local, send);
    SmallVector<Value> inits = llvm::map_to_vector(
        loop.getInits(), [&](Value init) { return map.lookup(init); });
    if (rounds.most == 0) {
      map.map(loop.getResults(), inits);
      return success();
    }
    inits.insert(inits.begin(), rounds.count);
    LogicalResult done = success();
    Block *outer = builder.getInsertionBlock();
    auto made = builder.create<graph::LoopOp>(
        loop.getLoc(), rounds.most, inits,
        [&](OpBuilder &inner, Location at, Value induction,
            ValueRange carried) {
          graph::Emitter emit(inner, at);
          ExchangeRound number{emit.add(induction, 1.0), outer};
          round = &number;
          for (auto [from, to] :
               llvm::zip(loop.getCarried(), carried.drop_front()))
            map.map(from, to);
          done = partition(loop.getBody().front(), inner);
          inner.getInsertionBlock()->getTerminator()->insertOperands(
              0, carried.front());
          round = nullptr;
        });
    made.setCounted(true);
    map.map(loop.getResults(), made.getResults().drop_front());
    return done;
  }

  LogicalResult partitionLoop(graph::LoopOp loop, OpBuilder &builder) {
    if (loop.getOverflow())
      return partitionRounds(loop, builder);
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
    // The pipeline schedule is the same for all devices.
    if (Attribute table = loop->getAttr(dist::kScheduleAttr))
      local->setAttr(dist::kScheduleAttr, table);
    map.map(loop.getResults(), local.getResults());
    return done;
  }

  // Calls of an update with equal shapes share one function, named by the
  // shape.
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
    func::FuncOp callee = callees.of(call);
    func::FuncOp &target = local[{callee, same ? Type() : Type(*shaped)}];
    if (!target)
      target = same ? callee : specialized(callee, shaped->getShape());
    used.insert(target);
    auto made = builder.create<func::CallOp>(call.getLoc(), target, operands);
    map.map(call.getResults(), made.getResults());
    return success();
  }

  func::FuncOp specialized(func::FuncOp callee, ArrayRef<int64_t> shape) {
    std::string name =
        (callee.getName() + ".local." +
         llvm::join(
             llvm::map_range(shape,
                             [](int64_t size) { return std::to_string(size); }),
             "x"))
            .str();
    if (!module.lookupSymbol(name))
      specialize(callee, name, shape);
    return module.lookupSymbol<func::FuncOp>(name);
  }

  void specialize(func::FuncOp callee, StringRef name,
                  ArrayRef<int64_t> shape) {
    OpBuilder builder(callee);
    auto clone = cast<func::FuncOp>(builder.clone(*callee));
    clone.setName(name);
    auto localOf = [&](RankedTensorType type) {
      return type.getRank() == 0 ? type : type.clone(shape);
    };
    AttrTypeReplacer replacer;
    replacer.addReplacement(localOf);
    replacer.addReplacement([&](SplatElementsAttr splat) -> Attribute {
      return splat.resizeSplat(
          localOf(cast<RankedTensorType>(splat.getType())));
    });
    replacer.recursivelyReplaceElementsIn(clone, /*replaceAttrs=*/true,
                                          /*replaceLocs=*/false,
                                          /*replaceTypes=*/true);
  }

  ModuleOp module;
  bool padsExchanges;
  Callees callees; ///< before partitioning
  Mesh mesh;
  Coordinates at;
  Shares shares;
  IRMapping map;
  RowExchanges exchanges;
  const ExchangeRound *round = nullptr; ///< in whose loop the local code is
  LocalCollectiveMatmul products;
  llvm::DenseSet<Operation *> used; ///< pointwise functions of local code
  /// Local functions, by the original function and the local type.
  llvm::DenseMap<std::pair<Operation *, Type>, func::FuncOp> local;
};

/// Replaces dist.offset by slices of the input mesh.offsets.
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
    Callees callees(module);
    for (auto function : module.getOps<func::FuncOp>())
      if (!callees.isPointwise(function))
        bind(function, callees);
  }

private:
  void number(dist::OffsetOp op) {
    SmallVector<dist::AxisRefAttr> axes(
        op.getAxes().getAsRange<dist::AxisRefAttr>());
    auto factor = dist::FactorAttr::get(op.getContext(), op.getSize(), axes);
    entries.insert(factor);
    numbers[op] = std::distance(entries.begin(), llvm::find(entries, factor));
  }

  void bind(func::FuncOp function, const Callees &callees) {
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
      if (!callees.isPointwiseCall(call))
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
    if (failed(
            Partitioner(module, *meshes.begin(), device, padsExchanges).run()))
      return signalPassFailure();
    OffsetBinder(module).run();
  }
};
} // namespace
