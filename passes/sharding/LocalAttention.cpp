// Attention with the tokens of each sequence cut. Every device has the queries
// of its tokens and needs the keys and values of all. Where shares are equal
// they go around in a ring (Liu et al. 2023, Ring Attention): in each round a
// device attends to the share that it holds and hands it on, and what the
// rounds give is merged by log-sum-exp, so that nobody ever has more than two
// shares. Otherwise keys and values are gathered. The gradients of keys travel
// with them, or are parts of sums that are scattered.
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Resharder.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::Emitter;
using graph::tensorType;

static Type wideOf(Emitter &e, Value x) {
  Type element = tensorType(x).getElementType();
  return element.isF64() ? element : e.builder().getF32Type();
}

FailureOr<std::optional<Factor>> sharding::cutDim(LocalOp &local, Value value,
                                                  unsigned dim) {
  DimPlacement factors = local.placementOf(value).dims[dim];
  if (llvm::all_of(factors,
                   [](const Factor &factor) { return factor.axes.empty(); }))
    return std::optional<Factor>();
  if (factors.size() != 1)
    return local.op->emitOpError("has dimension ")
           << dim << " of " << value.getType()
           << " cut by one of several factors; cut it by all";
  return std::optional<Factor>(factors.front());
}

static Value scalar(Emitter &e, int64_t value) {
  return e.splat(static_cast<double>(value),
                 RankedTensorType::get({}, e.builder().getI32Type()));
}

//===--- keys gathered ----------------------------------------------------===//

namespace {
/// Attention, or its gradient, over keys and values that are there whole.
class Gathered {
public:
  Gathered(LocalOp &local, const Factor &tokens)
      : local(local), e(local.builder, local.op->getLoc()),
        resharder(e, local.mesh, local.at), tokens(tokens) {}

  template <typename Op> void emit(Op op) {
    bool cutKeys = !op.getStart();
    Value start = resharder.offsetOf(tokens), key, value;
    if (cutKeys)
      key = gather(op.getKey()), value = gather(op.getValue());
    else
      start = e.add(start, local.map.lookup(op.getStart()));
    auto clone = cast<Op>(local.builder.clone(*op, local.map));
    clone->removeAttr(dist::kShardingsAttr);
    clone.getStartMutable().assign(start);
    if (cutKeys) {
      clone.getKeyMutable().assign(key);
      clone.getValueMutable().assign(value);
    }
    for (auto [result, own] :
         llvm::zip(op->getResults(), clone->getResults())) {
      own.setType(local.localType(result));
      local.map.map(result, own);
    }
    if (auto grad = dyn_cast<graph::AttentionGradOp>(clone.getOperation());
        grad && cutKeys) {
      scatter(op->getResult(1), grad.getDKey(), grad.getKey());
      scatter(op->getResult(2), grad.getDValue(), grad.getValue());
    }
  }

private:
  Placement uncut(Value value) const {
    Placement whole = local.placementOf(value);
    for (Factor &factor : whole.dims[1])
      factor.axes.clear();
    whole.normalize(local.mesh);
    return whole;
  }
  Value gather(Value value) {
    return resharder.reshard(local.map.lookup(value), local.placementOf(value),
                             uncut(value));
  }
  // The gradient of gathered keys has the queries of this device only. Sums
  // over devices are of f32.
  void scatter(Value result, Value part, Value keys) {
    part.setType(keys.getType());
    Placement to = local.placementOf(result), from = uncut(result);
    llvm::append_range(from.partial, tokens.axes);
    llvm::sort(from.partial);
    Value sum = resharder.reshard(e.convert(part, wideOf(e, part)), from, to);
    local.map.map(result, e.convert(sum, tensorType(part).getElementType()));
  }

  LocalOp &local;
  Emitter e;
  Resharder resharder;
  const Factor &tokens;
};
} // namespace

//===--- a ring -----------------------------------------------------------===//

namespace {
/// In round i the device at place r of the ring holds the keys of place r - i.
class Ring {
public:
  Ring(LocalOp &local, const Factor &tokens, bool causal,
       std::optional<uint64_t> window)
      : local(local), e(local.builder, local.op->getLoc()),
        axis(tokens.axes[0]), devices(local.mesh.size(axis)),
        share(tokens.size / devices), rounds(devices),
        offset(Resharder(e, local.mesh, local.at).offsetOf(tokens)) {
    // Behind the window nobody sees anything, and what comes from places after
    // a device's own is in its future.
    if (causal && window)
      rounds = std::min<int64_t>(
          devices,
          1 + llvm::divideCeil(static_cast<int64_t>(*window) - 1, share));
  }

  void emit(graph::AttentionOp op);
  void emit(graph::AttentionGradOp op);

private:
  Value of(Value whole) const { return local.map.lookup(whole); }
  Value pass(Value block, int64_t places);
  Value startOf(int64_t round);
  Value rows(Value ofHeads, Value like);

  LocalOp &local;
  Emitter e;
  unsigned axis;
  int64_t devices, share, rounds;
  Value offset; ///< of this device's first token
};
} // namespace

// To the device so many places on.
Value Ring::pass(Value block, int64_t places) {
  SmallVector<int64_t> targets;
  for (int64_t i = 0; i < devices; ++i)
    targets.push_back((i + places + devices) % devices);
  OpBuilder &b = e.builder();
  Attribute ref = dist::AxisRefAttr::get(b.getContext(),
                                         local.mesh.axes[axis].getName(), 1, 0);
  return b.create<dist::PermuteOp>(e.location(), block.getType(), block,
                                   FlatSymbolRefAttr::get(local.mesh.name),
                                   b.getArrayAttr(ref),
                                   b.getDenseI64ArrayAttr(targets));
}

// Where the first query stands from the first key that is held: negative where
// those keys are of later tokens. Causal kernels skip them.
Value Ring::startOf(int64_t round) {
  if (round == 0)
    return {};
  Value isEarlier =
      e.compare(offset, graph::ComparePredicate::ge, scalar(e, round * share));
  return e.select(isEarlier, scalar(e, round * share),
                  scalar(e, (round - devices) * share));
}

// [batch, heads, tokens] → [batch, tokens, heads, head_dim]
Value Ring::rows(Value ofHeads, Value like) {
  return e.broadcastFirst(e.transpose(ofHeads, {0, 2, 1}),
                          tensorType(like).getShape());
}

void Ring::emit(graph::AttentionOp op) {
  Value query = of(op.getQuery()), key = of(op.getKey()),
        value = of(op.getValue());
  Type wide = wideOf(e, query);
  RankedTensorType type = local.localType(op.getResult()),
                   lseType = local.localType(op.getLse());
  Value result, lse;
  for (int64_t round = 0; round < rounds; ++round) {
    if (round > 0)
      key = pass(key, 1), value = pass(value, 1);
    auto block = e.builder().create<graph::AttentionOp>(
        e.location(), type, lseType, query, key, value, startOf(round),
        op.getScaleAttr(), op.getCausalAttr(), op.getWindowAttr());
    Value own = e.convert(block.getResult(), wide),
          ownLse = e.convert(block.getLse(), wide);
    if (round == 0) {
      result = own, lse = ownLse;
      continue;
    }
    // A row that has seen nothing has lse -inf; the least finite maximum gives
    // it weight zero.
    Value top = e.max(e.max(lse, ownLse),
                      e.splatLike(std::numeric_limits<float>::lowest(), lse));
    Value before = e.exp(e.sub(lse, top)), now = e.exp(e.sub(ownLse, top));
    Value sum = e.add(before, now);
    Value inverse =
        e.div(e.splatLike(1, sum),
              e.max(sum, e.splatLike(std::numeric_limits<float>::min(), sum)));
    result = e.add(e.mul(result, rows(e.mul(before, inverse), result)),
                   e.mul(own, rows(e.mul(now, inverse), own)));
    lse = e.add(top, e.unary<graph::LogOp>(sum));
  }
  local.map.map(op.getResult(), e.convert(result, type.getElementType()));
  local.map.map(op.getLse(), e.convert(lse, lseType.getElementType()));
}

// Gradients of keys and values travel with them, in f32, and home at the end.
void Ring::emit(graph::AttentionGradOp op) {
  Value query = of(op.getQuery()), key = of(op.getKey()),
        value = of(op.getValue()), dQuery, dKey, dValue;
  Type wide = wideOf(e, query);
  for (int64_t round = 0; round < rounds; ++round) {
    if (round > 0) {
      key = pass(key, 1), value = pass(value, 1);
      dKey = pass(dKey, 1), dValue = pass(dValue, 1);
    }
    auto grad = e.builder().create<graph::AttentionGradOp>(
        e.location(), query.getType(), key.getType(), value.getType(), query,
        key, value, of(op.getOutput()), of(op.getLse()), of(op.getCotangent()),
        startOf(round), op.getScaleAttr(), op.getCausalAttr(),
        op.getWindowAttr());
    auto addUp = [&](Value &sum, Value part) {
      part = e.convert(part, wide);
      sum = sum ? e.add(sum, part) : part;
    };
    addUp(dQuery, grad.getDQuery());
    addUp(dKey, grad.getDKey());
    addUp(dValue, grad.getDValue());
  }
  if (rounds > 1) {
    dKey = pass(dKey, 1 - rounds);
    dValue = pass(dValue, 1 - rounds);
  }
  Type narrow = tensorType(query).getElementType();
  local.map.map(op.getDQuery(), e.convert(dQuery, narrow));
  local.map.map(op.getDKey(), e.convert(dKey, narrow));
  local.map.map(op.getDValue(), e.convert(dValue, narrow));
}

//===--- which ------------------------------------------------------------===//

template <typename Op>
static FailureOr<bool> emitAttention(LocalOp &local, Op op) {
  FailureOr<std::optional<Factor>> tokens = cutDim(local, op.getQuery(), 1);
  if (failed(tokens))
    return failure();
  if (!*tokens)
    return false;
  bool isEven = (*tokens)->size % local.mesh.size((*tokens)->axes) == 0;
  if (!op.getStart() && (*tokens)->axes.size() == 1 && isEven)
    Ring(local, **tokens, op.getCausal(), op.getWindow()).emit(op);
  else
    Gathered(local, **tokens).emit(op);
  return true;
}

FailureOr<bool> sharding::emitLocalAttention(LocalOp &local) {
  if (auto op = dyn_cast<graph::AttentionOp>(local.op))
    return emitAttention(local, op);
  if (auto op = dyn_cast<graph::AttentionGradOp>(local.op))
    return emitAttention(local, op);
  return false;
}

// Positions count from the share's first token.
FailureOr<bool> sharding::emitLocalRope(LocalOp &local) {
  auto op = dyn_cast<graph::RopeOp>(local.op);
  if (!op || op.getPositions())
    return false;
  FailureOr<std::optional<Factor>> tokens = cutDim(local, op.getInput(), 1);
  if (failed(tokens))
    return failure();
  if (!*tokens)
    return false;
  Emitter e(local.builder, op.getLoc());
  RankedTensorType type = local.localType(op.getResult());
  auto positions = RankedTensorType::get(type.getShape().take_front(2),
                                         e.builder().getI32Type());
  Value start = Resharder(e, local.mesh, local.at).offsetOf(**tokens);
  Value at = e.add(e.iota(positions, 1),
                   e.broadcastScalar(start, positions.getShape()));
  auto clone = cast<graph::RopeOp>(local.builder.clone(*op, local.map));
  clone->removeAttr(dist::kShardingsAttr);
  clone.getPositionsMutable().assign(at);
  clone.getResult().setType(type);
  local.map.map(op.getResult(), clone.getResult());
  return true;
}
