// Attention over sharded tokens. Every device has the queries of its tokens and
// needs the keys and values of all. Even shards go around in a ring (Liu et al.
// 2023, Ring Attention): in each round a device attends to the keys that it
// holds and passes them on, and the results of rounds are merged by
// log-sum-exp, so that a device never holds more than two shards. Shards are
// contiguous tokens, or every n-th token (Brandon et al. 2023, Striped
// Attention). With uneven shards keys and values are gathered. The gradients of
// keys go around with them, or are reduce-scattered. Any other sharding is
// undone before the op and restored after it.
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Resharder.h"
#include <functional>
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

// The placement of a value with all tokens, which are in dimension `dim`.
static Placement withAllTokens(const LocalOp &local, Value value,
                               unsigned dim) {
  Placement whole = local.placementOf(value);
  for (Factor &factor : whole.dims[dim])
    factor.axes.clear();
  whole.normalize(local.mesh);
  return whole;
}

static Value scalar(Emitter &e, int64_t value) {
  return e.splat(static_cast<double>(value),
                 RankedTensorType::get({}, e.builder().getI32Type()));
}

//===--- keys gathered ----------------------------------------------------===//

namespace {
/// Attention, or its gradient, over gathered keys and values.
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
  Value gather(Value value) {
    return resharder.reshard(local.map.lookup(value), local.placementOf(value),
                             withAllTokens(local, value, 1));
  }
  // The gradient of gathered keys has the queries of this device only. Sums
  // over devices are of f32.
  void scatter(Value result, Value part, Value keys) {
    part.setType(keys.getType());
    Placement to = local.placementOf(result),
              from = withAllTokens(local, result, 1);
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
/// In round i device r of the ring holds the keys of device r - i.
class Ring {
public:
  /// `tokens` is the sharded factor: all tokens (contiguous shards), or with
  /// `striped` the inner factor, whose size is the number of devices.
  /// Queries see `onlyEarlier` keys if they are causal and see no prompt.
  Ring(LocalOp &local, const Factor &tokens, bool striped, bool onlyEarlier,
       std::optional<uint64_t> window)
      : local(local), e(local.builder, local.op->getLoc()),
        axis(tokens.axes[0]), devices(local.mesh.size(axis)),
        share(tokens.size / devices), rounds(devices),
        offset(Resharder(e, local.mesh, local.at).offsetOf(tokens)) {
    after = share * devices;
    if (striped) { // Token t of a later device is one position after.
      before = 0, after = 1;
      return;
    }
    before = share;
    // Keys before the window, and keys of later devices, are not visible.
    if (onlyEarlier && window)
      rounds = std::min<int64_t>(
          devices,
          1 + llvm::divideCeil(static_cast<int64_t>(*window) - 1, share));
  }

  void emit(graph::AttentionOp op);
  void emit(graph::AttentionGradOp op);

private:
  Value of(Value whole) const { return local.map.lookup(whole); }
  Value pass(Value block, int64_t positions);
  Value startOf(int64_t round);
  Value relative(Value tokens, int64_t round);
  Value firstOf(Value first, int64_t round);
  Value lastOf(Value last, int64_t round);
  Value rows(Value ofHeads, Value like);

  LocalOp &local;
  Emitter e;
  unsigned axis;
  int64_t devices, share, rounds;
  int64_t before, after; ///< see startOf
  Value offset;          ///< of this device's first token
};
} // namespace

// Sends to the device that many positions after this one.
Value Ring::pass(Value block, int64_t positions) {
  SmallVector<int64_t> targets;
  for (int64_t i = 0; i < devices; ++i)
    targets.push_back((i + positions + devices) % devices);
  OpBuilder &b = e.builder();
  Attribute ref = dist::AxisRefAttr::get(b.getContext(),
                                         local.mesh.axes[axis].getName(), 1, 0);
  return b.create<dist::PermuteOp>(e.location(), block.getType(), block,
                                   FlatSymbolRefAttr::get(local.mesh.name),
                                   b.getArrayAttr(ref),
                                   b.getDenseI64ArrayAttr(targets));
}

// The position of the first query relative to the first key that is held. With
// contiguous shards, keys of an earlier device begin one shard earlier for each
// round; those of a later device are in the future, and causal kernels skip
// them. With stripes, query t sees the keys up to t of an earlier device, and
// up to t - 1 of a later one.
Value Ring::startOf(int64_t round) {
  if (round == 0)
    return {};
  int64_t start = round * before;
  Value isEarlier =
      e.compare(offset, graph::ComparePredicate::ge, scalar(e, round * share));
  return e.select(isEarlier, scalar(e, start), scalar(e, start - after));
}

// Tokens [batch, tokens] relative to that of the first key that is held.
Value Ring::relative(Value tokens, int64_t round) {
  tokens = of(tokens);
  int64_t step = round * share;
  Value wraps = e.compare(offset, graph::ComparePredicate::lt, scalar(e, step));
  Value held = e.sub(offset, scalar(e, step));
  held = e.select(wraps, e.add(held, scalar(e, share * devices)), held);
  return e.sub(tokens, e.broadcastScalar(held, tensorType(tokens).getShape()));
}

// The first keys of documents relative to the first key that is held: with
// stripes key s is token s × devices + the number of its device.
Value Ring::firstOf(Value first, int64_t round) {
  if (!first)
    return {};
  Value from = relative(first, round);
  if (before != 0)
    return from;
  from = e.add(from, e.splatLike(static_cast<double>(devices - 1), from));
  return e.div(from, e.splatLike(static_cast<double>(devices), from));
}

// The last keys of prompts in the same way, rounded down.
Value Ring::lastOf(Value last, int64_t round) {
  if (!last)
    return {};
  Value to = relative(last, round);
  if (before != 0)
    return to;
  Value isBefore =
      e.compare(to, graph::ComparePredicate::lt, e.splatLike(0, to));
  Value key = e.div(to, e.splatLike(static_cast<double>(devices), to));
  return e.select(isBefore, e.splatLike(-1, key), key);
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
  Value result, lse;
  for (int64_t round = 0; round < rounds; ++round) {
    if (round > 0)
      key = pass(key, 1), value = pass(value, 1);
    // What a query's sink adds is counted once.
    Value sinks = op.getSinks() && round == 0 ? of(op.getSinks()) : Value();
    auto block = e.builder().create<graph::AttentionOp>(
        e.location(), query, key, value, startOf(round),
        firstOf(op.getFirst(), round), lastOf(op.getLast(), round), sinks,
        op.getScaleAttr(), op.getCausalAttr(), op.getWindowAttr(),
        op.getCapAttr());
    Value own = e.convert(block.getResult(), wide),
          ownLse = e.convert(block.getLse(), wide);
    if (round == 0) {
      result = own, lse = ownLse;
      continue;
    }
    // A row without visible keys has lse -inf; the least finite maximum gives
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
  local.map.map(op.getResult(),
                e.convert(result, op.getResult().getType().getElementType()));
  local.map.map(op.getLse(),
                e.convert(lse, op.getLse().getType().getElementType()));
}

// Gradients of keys and values go around with them, in f32, and home at the
// end.
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
        e.location(), query, key, value, of(op.getOutput()), of(op.getLse()),
        of(op.getCotangent()), startOf(round), firstOf(op.getFirst(), round),
        lastOf(op.getLast(), round), op.getScaleAttr(), op.getCausalAttr(),
        op.getWindowAttr(), op.getCapAttr());
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

//===--- ring or gather ---------------------------------------------------===//

// On all tokens, as if they were not sharded.
static void emitWhole(LocalOp &local) {
  Emitter e(local.builder, local.op->getLoc());
  Resharder resharder(e, local.mesh, local.at);
  auto tokenDim = [](Value value) { // [batch, heads, tokens] or [batch, tokens]
    return tensorType(value).getRank() == 3 ? 2 : 1;
  };
  SmallVector<Value> operands;
  for (Value operand : local.op->getOperands()) {
    Value own = local.map.lookup(operand);
    if (tensorType(operand).getRank() > 1) // neither start nor sinks
      own = resharder.reshard(own, local.placementOf(operand),
                              withAllTokens(local, operand, tokenDim(operand)));
    operands.push_back(own);
  }
  Operation *clone = local.builder.clone(*local.op);
  clone->removeAttr(dist::kShardingsAttr);
  clone->setOperands(operands);
  for (auto [result, own] :
       llvm::zip(local.op->getResults(), clone->getResults())) {
    Placement whole = withAllTokens(local, result, tokenDim(result));
    own.setType(whole.localType(tensorType(result), local.mesh, local.at));
    local.map.map(result,
                  resharder.reshard(own, whole, local.placementOf(result)));
  }
}

template <typename Op> static bool emitAttention(LocalOp &local, Op op) {
  DimPlacement tokens = local.placementOf(op.getQuery()).dims[1];
  if (llvm::none_of(tokens, std::mem_fn(&Factor::isCut)))
    return false;
  const Mesh &mesh = local.mesh;
  const Factor &last = tokens.back();
  bool isEven = last.axes.size() == 1 && !op.getStart() &&
                last.size % mesh.size(last.axes) == 0;
  bool isStriped = isEven && tokens.size() == 2 && !tokens.front().isCut() &&
                   last.size == mesh.size(last.axes) && op.getCausal() &&
                   !op.getWindow();
  if (isStriped || (isEven && tokens.size() == 1))
    Ring(local, last, isStriped,
         /*onlyEarlier=*/op.getCausal() && !op.getLast(), op.getWindow())
        .emit(op);
  else if (tokens.size() == 1)
    Gathered(local, last).emit(op);
  else
    emitWhole(local);
  return true;
}

FailureOr<bool> sharding::emitLocalAttention(LocalOp &local) {
  if (auto op = dyn_cast<graph::AttentionOp>(local.op))
    return emitAttention(local, op);
  if (auto op = dyn_cast<graph::AttentionGradOp>(local.op))
    return emitAttention(local, op);
  return false;
}
