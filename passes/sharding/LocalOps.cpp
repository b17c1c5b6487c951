#include "passes/sharding/LocalOps.h"
#include "dialects/graph/Build.h"
#include "passes/sharding/Resharder.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

RankedTensorType Shares::typeOf(Value value) const {
  const Placement &placement = placementOf(value);
  RankedTensorType &type = types[{&placement, value.getType()}];
  if (!type)
    type = placement.localType(tensorType(value), reader.mesh, at);
  return type;
}

// Most ops are cloned with local types.
Operation *Shares::clone(Operation *op, OpBuilder &builder,
                         IRMapping &map) const {
  DictionaryAttr &attrs = stripped[op->getDiscardableAttrDictionary()];
  if (!attrs) {
    NamedAttrList list(op->getDiscardableAttrDictionary());
    list.erase(dist::kShardingsAttr);
    attrs = list.getDictionary(op->getContext());
  }
  SmallVector<Value> operands = llvm::map_to_vector(
      op->getOperands(), [&](Value value) { return map.lookup(value); });
  SmallVector<Type> types = llvm::map_to_vector(
      op->getResults(), [&](Value value) -> Type { return typeOf(value); });
  Operation *clone = builder.insert(
      Operation::create(op->getLoc(), op->getName(), types, operands, attrs,
                        op->getPropertiesStorage(), {}, /*numRegions=*/0));
  map.map(op->getResults(), clone->getResults());
  return clone;
}

ElementsAttr sharding::resizeSplat(ElementsAttr splat, RankedTensorType type) {
  auto dense = dyn_cast<SplatElementsAttr>(splat);
  if (!dense || splat.getType() == type)
    return splat;
  return dense.resizeSplat(type);
}

// The same op with local result types.
static Operation *cloneLocal(LocalOp &local) {
  return local.shares.clone(local.op, local.builder, local.map);
}

// A slice of one of n equal parts starts at a multiple of the local size.
static void emitSlice(LocalOp &local, graph::SliceOp op) {
  auto clone = cast<graph::SliceOp>(cloneLocal(local));
  SmallVector<int64_t> start(op.getStart());
  for (auto [i, from] : llvm::enumerate(start))
    if (from > 0)
      from = from / op.getResult().getType().getDimSize(i) *
             clone.getResult().getType().getDimSize(i);
  // An unaligned start is along a dimension that is not sharded.
  for (auto [i, from] : llvm::enumerate(start))
    if (op.getStart()[i] %
        std::max<int64_t>(1, op.getResult().getType().getDimSize(i)))
      from = op.getStart()[i];
  clone.setStart(start);
}

FailureOr<std::optional<Factor>> sharding::cutRows(LocalOp &local,
                                                   Value table) {
  DimPlacement rows = local.placementOf(table).dims[0];
  if (llvm::all_of(rows,
                   [](const Factor &factor) { return factor.axes.empty(); }))
    return std::optional<Factor>();
  if (rows.size() != 1)
    return local.op->emitOpError(
        "has a table whose rows are sharded along one of several factors");
  return std::optional<Factor>(rows.front());
}

OwnRows::OwnRows(graph::Emitter &emit, Value ids, Value offset, int64_t rows) {
  auto type = tensorType(ids);
  Value start = emit.broadcastScalar(
      emit.convert(offset, type.getElementType()), type.getShape());
  Value own = emit.sub(ids, start);
  Value zero = emit.splatLike(0, ids);
  Value inside = emit.compare(own, graph::ComparePredicate::ge, zero),
        below = emit.compare(own, graph::ComparePredicate::lt,
                             emit.splatLike(static_cast<double>(rows), ids));
  mask = emit.binary<graph::AndOp>(inside, below);
  numbers = emit.select(mask, own, zero);
}

Value OwnRows::masked(graph::Emitter &emit, Value rows) const {
  auto type = tensorType(rows);
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank() - 1));
  Value wide = emit.broadcast(mask, dims, type.getShape());
  return emit.select(wide, rows, emit.splatLike(0, rows));
}

OwnRows OwnRows::of(LocalOp &local, graph::Emitter &emit, Value ids,
                    const DimPlacement &rows) {
  Resharder resharder(emit, local.mesh, local.at);
  OwnRows own;
  int64_t after = 1, ownAfter = 1; // rows of one index of the factor
  for (const Factor &factor : llvm::reverse(rows)) {
    const int64_t size = factor.rangeAt(local.mesh, local.at).size;
    Value index = emit.div(ids, emit.splatLike(after, ids));
    index = emit.sub(
        index, emit.mul(emit.div(index, emit.splatLike(factor.size, index)),
                        emit.splatLike(factor.size, index)));
    if (factor.isCut()) {
      OwnRows part(emit, index, resharder.offsetOf(factor), size);
      index = part.numbers;
      own.mask =
          own.mask ? emit.binary<graph::AndOp>(own.mask, part.mask) : part.mask;
    }
    own.numbers = own.numbers
                      ? emit.add(own.numbers,
                                 emit.mul(index, emit.splatLike(ownAfter, ids)))
                      : index;
    ownAfter *= size;
    after *= factor.size;
  }
  return own;
}

// The rows of a table that this device has; nothing if it has all.
static std::optional<OwnRows> ownRowsOf(LocalOp &local, graph::Emitter &emit,
                                        Value table, Value ids) {
  const DimPlacement rows = local.placementOf(table).dims[0];
  if (llvm::none_of(rows, std::mem_fn(&Factor::isCut)))
    return std::nullopt;
  ids = local.map.lookup(ids);
  if (rows.size() > 1)
    return OwnRows::of(local, emit, ids, rows);
  Value offset = Resharder(emit, local.mesh, local.at).offsetOf(rows.front());
  return OwnRows(emit, ids, offset,
                 tensorType(local.map.lookup(table)).getDimSize(0));
}

static void emitEmbedding(LocalOp &local, graph::EmbeddingOp op) {
  graph::Emitter emit(local.builder, op.getLoc());
  auto own = ownRowsOf(local, emit, op.getTable(), op.getIds());
  if (!own) {
    cloneLocal(local);
    return;
  }
  Value table = local.map.lookup(op.getTable());
  local.map.map(op.getResult(),
                own->masked(emit, emit.embedding(table, own->numbers)));
}

static void emitScatter(LocalOp &local, graph::ScatterAddOp op) {
  graph::Emitter emit(local.builder, op.getLoc());
  auto own = ownRowsOf(local, emit, op.getBase(), op.getIds());
  if (!own) {
    cloneLocal(local);
    return;
  }
  Value base = local.map.lookup(op.getBase());
  Value updates = own->masked(emit, local.map.lookup(op.getUpdates()));
  local.map.map(
      op.getResult(),
      local.builder
          .create<graph::ScatterAddOp>(op.getLoc(), base, own->numbers, updates)
          .getResult());
}

// The axes along which a device has the rows of its groups, not of its tokens.
static Factor ownGroups(const Placement &rows, int64_t groups) {
  Factor factor{groups, {}};
  for (unsigned axis : rows.own)
    if (!rows.uses(axis))
      factor.axes.push_back(axis);
  return factor;
}

// The device's groups come first, and all others are empty: entries of other
// groups get no slot.
static void emitGroupRows(LocalOp &local, graph::GroupRowsOp op) {
  Factor groups = ownGroups(local.placementOf(op.getSlots()),
                            tensorType(op.getOffsets()).getDimSize(0) - 1);
  if (!groups.axes.empty()) {
    graph::Emitter emit(local.builder, op.getLoc());
    Value ids = local.map.lookup(op.getIds());
    OwnRows own(emit, ids,
                Resharder(emit, local.mesh, local.at).offsetOf(groups),
                groups.rangeAt(local.mesh, local.at).size);
    local.map.map(op.getIds(),
                  emit.select(own.mask, own.numbers, emit.splatLike(-1, ids)));
    cloneLocal(local);
    local.map.map(op.getIds(), ids);
    return;
  }
  cloneLocal(local);
}

// The op on as many groups as the device has matrices.
template <typename Op> static void emitGrouped(LocalOp &local, Op op) {
  Value all = local.map.lookup(op.getGroups());
  int64_t groups =
      cast<RankedTensorType>(isa<graph::GroupedMatmulOp>(op)
                                 ? local.localType(op->getOperand(1))
                                 : local.localType(op->getResult(0)))
          .getDimSize(0);
  graph::Emitter emit(local.builder, op.getLoc());
  if (!op.isPadded() && groups + 1 < tensorType(all).getDimSize(0))
    local.map.map(op.getGroups(), emit.slice(all, {0}, {groups + 1}));
  cloneLocal(local);
  local.map.map(op.getGroups(), all);
}

// How many entries of the first dimension one index of its first factor is;
// nothing if a shard is not one range of entries.
static std::optional<int64_t> entriesOfRange(const DimPlacement &entries) {
  int64_t each = 1;
  for (const Factor &factor : llvm::drop_begin(entries)) {
    if (!factor.axes.empty())
      return std::nullopt;
    each *= factor.size;
  }
  return each;
}

// A shard numbers its entries from its offset. If it is not one range, the
// whole tensor is drawn (for dropout, of ones) and then sliced.
template <typename Op> static LogicalResult emitRandom(LocalOp &local, Op op) {
  Placement place = local.placementOf(op.getResult());
  bool isCut = !place.dims.empty() && !place.dims[0].empty() &&
               !place.withoutPartial().isUncut();
  if (!isCut) {
    cloneLocal(local);
    return success();
  }
  graph::Emitter emit(local.builder, op.getLoc());
  Resharder resharder(emit, local.mesh, local.at);
  std::optional<int64_t> each = entriesOfRange(place.dims[0]);
  if (!each) {
    Placement whole = Placement::whole(tensorType(op.getResult()));
    Value ones = emit.splatLike(1.0, op.getResult());
    auto all = cast<Op>(local.builder.clone(*op, local.map));
    all->removeAttr(dist::kShardingsAttr);
    all.getResult().setType(tensorType(op.getResult()));
    if constexpr (std::is_same_v<Op, graph::DropoutOp>)
      all.getInputMutable().assign(ones);
    Value share = resharder.reshard(all.getResult(), whole, place);
    if (!share)
      return failure();
    if constexpr (std::is_same_v<Op, graph::DropoutOp>)
      share = emit.mul(local.map.lookup(op.getInput()), share);
    local.map.map(op.getResult(), share);
    return success();
  }
  Value start = resharder.offsetOf(place.dims[0].front());
  start = emit.mul(start, emit.splatLike(static_cast<double>(*each), start));
  if (op.getOffset()) {
    Value offset = local.map.lookup(op.getOffset());
    start = emit.add(offset,
                     emit.convert(start, tensorType(offset).getElementType()));
  }
  auto clone = cast<Op>(cloneLocal(local));
  clone.getOffsetMutable().assign(start);
  return success();
}

LogicalResult sharding::emitLocal(LocalOp &local) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(local.op)
      .Case([&](graph::EmbeddingOp op) {
        emitEmbedding(local, op);
        return success();
      })
      .Case([&](graph::ScatterAddOp op) {
        emitScatter(local, op);
        return success();
      })
      .Case([&](graph::SliceOp op) {
        emitSlice(local, op);
        return success();
      })
      .Case<graph::RandomOp, graph::DropoutOp>(
          [&](auto op) { return emitRandom(local, op); })
      .Case([&](graph::GroupRowsOp op) {
        emitGroupRows(local, op);
        return success();
      })
      .Case<graph::GroupedMatmulOp, graph::GroupedOuterOp>([&](auto op) {
        emitGrouped(local, op);
        return success();
      })
      .Case([&](graph::SendRowsOp op) { return emitLocalSend(local, op); })
      .Case([&](graph::ReturnRowsOp op) { return emitLocalReturn(local, op); })
      .Case([&](graph::ConstantOp op) {
        auto clone = cast<graph::ConstantOp>(cloneLocal(local));
        clone.setValueAttr(
            resizeSplat(op.getValue(), tensorType(clone.getResult())));
        return success();
      })
      .Default([&](Operation *) -> LogicalResult {
        for (auto emit :
             {emitLocalHead, emitLocalAttention, emitLocalRope, emitLocalIota})
          if (FailureOr<bool> done = emit(local); failed(done) || *done)
            return done;
        cloneLocal(local);
        return success();
      });
}
