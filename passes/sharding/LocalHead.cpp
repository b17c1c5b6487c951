// The head and its loss over a sharded vocabulary (Shoeybi et al. 2019, section
// 3): every device computes the logits of its rows, and devices exchange only
// the maximum and the sum of exponentials. In chunks of tokens, like the head
// over a whole vocabulary.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/HeadChunks.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Resharder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::Emitter;
using graph::tensorType;

namespace {
/// The results of one chunk of tokens.
struct Chunk {
  /// [], [tokens] or [tokens, n]: of the targets that are on this device.
  Value loss;
  Value dInput, dWeight; ///< null without that gradient
};

class Head {
public:
  Head(LocalOp &local, const Factor &rows) : local(local), rows(rows) {
    auto operand = [&](unsigned i) {
      return local.map.lookup(local.op->getOperand(i));
    };
    input = operand(0), weight = operand(1), targets = operand(2);
    if (hasGradient())
      cotangent = operand(3);
    ignore = local.op->getAttrOfType<IntegerAttr>("ignore").getInt();
    if (auto bound = local.op->getAttrOfType<FloatAttr>("cap"))
      cap = bound.getValueAsDouble();
  }

  void emit();

private:
  bool hasGradient() const {
    return isa<graph::LinearCrossEntropyGradOp>(local.op);
  }
  // A constant weight, as of an adapter's base, has no gradient to add to.
  bool addsToGradient() const {
    return hasGradient() && !local.op->getResult(2).use_empty();
  }
  Value reduceOver(Emitter &e, Value part, dist::ReduceKind kind) const;
  /// `chunkCotangent`: one, or one for each target; null without gradients.
  Chunk emitChunk(Emitter &e, Value x, Value chunkTargets,
                  Value chunkCotangent) const;
  /// Whether the losses of targets are added up.
  bool isSum() const {
    return tensorType(local.op->getResult(0)).getRank() == 0;
  }
  Type lossType() const {
    return tensorType(local.op->getResult(0)).getElementType();
  }
  Type weightType() const {
    return tensorType(local.op->getResult(2)).getElementType();
  }
  RankedTensorType shapeOfWeight() const {
    Type sum = weightType().isF64() ? weightType() : local.builder.getF32Type();
    return RankedTensorType::get(tensorType(weight).getShape(), sum);
  }
  void emitLoop(Emitter &e, int64_t chunks);

  LocalOp &local;
  const Factor &rows;
  Value input, weight, targets, cotangent, offset;
  int64_t ignore;
  std::optional<double> cap;
};
} // namespace

Value Head::reduceOver(Emitter &e, Value part, dist::ReduceKind kind) const {
  SmallVector<Attribute> axes;
  MLIRContext *context = part.getContext();
  for (unsigned axis : rows.axes)
    axes.push_back(
        dist::AxisRefAttr::get(context, local.mesh.axes[axis].getName(), 1, 0));
  return e.builder().create<dist::AllReduceOp>(
      e.location(), part.getType(), part,
      FlatSymbolRefAttr::get(local.mesh.name), ArrayAttr::get(context, axes),
      dist::ReduceKindAttr::get(context, kind));
}

namespace {
/// The targets of a chunk that are on this device, [tokens] or [tokens, n].
class OwnTargets {
public:
  OwnTargets(Emitter &e, Value targets, Value offset, Value counted,
             ArrayRef<int64_t> shape)
      : shape(shape), own(e, targets, offset, shape[1]),
        here(e.binary<graph::AndOp>(own.mask, counted)) {
    if (isSeveral()) {
      Value none = e.splatLike(-1, own.numbers);
      numbers = e.convert(e.select(here, own.numbers, none),
                          e.builder().getI32Type());
      return;
    }
    auto index =
        RankedTensorType::get(shape, tensorType(own.numbers).getElementType());
    isTarget = e.binary<graph::AndOp>(
        e.compare(e.iota(index, 1), graph::ComparePredicate::eq,
                  e.broadcastFirst(own.numbers, shape)),
        e.broadcastFirst(here, shape));
  }

  /// Of each target, from what [tokens] have.
  Value spread(Emitter &e, Value x) const {
    return isSeveral() ? e.broadcastFirst(x, tensorType(here).getShape()) : x;
  }
  Value pick(Emitter &e, Value logits) const {
    if (isSeveral())
      return graph::detail::takeAlongRows(e, logits, numbers);
    return e.sumLast(e.select(isTarget, logits, e.splatLike(0.0, logits)));
  }
  /// d loss / d logits of the loss × `factor`, which is 0 where ignored.
  Value gradient(Emitter &e, Value softmax, Value factor) const {
    if (isSeveral())
      return e.sub(e.mul(softmax, e.broadcastFirst(e.sumLast(factor), shape)),
                   graph::detail::addAlongRows(e, factor, numbers, shape[1]));
    Value ones = e.convert(isTarget, tensorType(softmax).getElementType());
    return e.mul(e.sub(softmax, ones), e.broadcastFirst(factor, shape));
  }
  Value onDevice() const { return here; }

private:
  bool isSeveral() const { return tensorType(here).getRank() == 2; }
  const ArrayRef<int64_t> shape; ///< of the logits
  const OwnRows own;
  const Value here;
  Value isTarget; ///< i1, of logits, with one target a token
  Value numbers;  ///< with several: in the shard, or -1
};
} // namespace

// x: [tokens, width], logits: [tokens, local vocabulary]
Chunk Head::emitChunk(Emitter &e, Value x, Value chunkTargets,
                      Value chunkCotangent) const {
  Type compute = tensorType(x).getElementType();
  Type wide = compute.isF64() ? compute : e.builder().getF32Type();
  Value logits = e.softCap(e.einsum("tk,vk->tv", x, weight, wide), cap);
  ArrayRef<int64_t> shape = tensorType(logits).getShape();
  Value most = reduceOver(e, e.maxLast(logits), dist::ReduceKind::max);
  Value exps = e.exp(e.sub(logits, e.broadcastFirst(most, shape)));
  Value sum = reduceOver(e, e.sumLast(exps), dist::ReduceKind::sum);
  Value counted =
      e.compare(chunkTargets, graph::ComparePredicate::ne,
                e.splatLike(static_cast<double>(ignore), chunkTargets));
  const OwnTargets own(e, chunkTargets, offset, counted, shape);
  Value logSum = own.spread(e, e.add(most, e.unary<graph::LogOp>(sum)));
  Value loss = e.sub(logSum, own.pick(e, logits));
  loss = e.select(own.onDevice(), loss, e.splatLike(0.0, loss));
  Chunk chunk{e.convert(isSum() ? e.sumAll(loss) : loss, lossType()), {}, {}};
  if (!hasGradient())
    return chunk;
  Value factor = e.convert(chunkCotangent, wide);
  if (tensorType(factor).getRank() == 0)
    factor = e.broadcastScalar(factor, tensorType(chunkTargets).getShape());
  factor = e.select(counted, factor, e.splatLike(0.0, factor));
  Value softmax = e.div(exps, e.broadcastFirst(sum, shape));
  Value dLogits = own.gradient(e, softmax, factor);
  dLogits = e.convert(e.softCapGradient(dLogits, logits, cap), compute);
  chunk.dInput = e.einsum("tv,vk->tk", dLogits, weight);
  if (addsToGradient())
    chunk.dWeight =
        e.einsum("tv,tk->vk", dLogits, x, shapeOfWeight().getElementType());
  return chunk;
}

// [tokens, …] → [chunks, tokens / chunks, …]
static Value cutTokens(Emitter &e, Value x, int64_t chunks) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  shape[0] /= chunks;
  shape.insert(shape.begin(), chunks);
  return e.reshape(x, shape);
}

void Head::emitLoop(Emitter &e, int64_t chunks) {
  Value inputs = cutTokens(e, input, chunks),
        allTargets = cutTokens(e, targets, chunks);
  const bool hasOneCotangent =
      hasGradient() && tensorType(cotangent).getRank() == 0;
  Value cotangents = hasGradient() && !hasOneCotangent
                         ? cutTokens(e, cotangent, chunks)
                         : cotangent;
  SmallVector<int64_t> lossShape;
  if (!isSum())
    lossShape.append(tensorType(allTargets).getShape().begin(),
                     tensorType(allTargets).getShape().end());
  SmallVector<Value> inits{
      e.zeros(RankedTensorType::get(lossShape, lossType()))};
  if (hasGradient()) {
    inits.push_back(e.zeros(tensorType(inputs)));
    if (addsToGradient())
      inits.push_back(e.zeros(shapeOfWeight()));
  }
  auto loop = e.builder().create<graph::LoopOp>(
      e.location(), chunks, inits,
      [&](OpBuilder &b, Location loc, Value i, ValueRange carried) {
        Emitter inner(b, loc);
        Value own = cotangents;
        if (hasGradient() && !hasOneCotangent)
          own = inner.dynamicSlice(cotangents, i);
        Chunk chunk = emitChunk(inner, inner.dynamicSlice(inputs, i),
                                inner.dynamicSlice(allTargets, i), own);
        SmallVector<Value> next{isSum() ? inner.add(carried[0], chunk.loss)
                                        : b.create<graph::DynamicUpdateOp>(
                                              loc, carried[0], chunk.loss, i)};
        if (hasGradient()) {
          next.push_back(b.create<graph::DynamicUpdateOp>(loc, carried[1],
                                                          chunk.dInput, i));
          if (addsToGradient())
            next.push_back(inner.add(carried[2], chunk.dWeight));
        }
        b.create<graph::YieldOp>(loc, next);
      });
  Value loss = loop.getResult(0);
  if (!isSum())
    loss = e.reshape(loss, tensorType(targets).getShape());
  local.map.map(local.op->getResult(0), loss);
  if (!hasGradient())
    return;
  local.map.map(local.op->getResult(1),
                e.reshape(loop.getResult(1), tensorType(input).getShape()));
  if (addsToGradient())
    local.map.map(local.op->getResult(2),
                  e.convert(loop.getResult(2), weightType()));
}

void Head::emit() {
  Emitter e(local.builder, local.op->getLoc());
  offset = Resharder(e, local.mesh, local.at).offsetOf(rows);
  if (tensorType(targets).getElementTypeBitWidth() < 32)
    targets = e.convert(targets, e.builder().getI32Type());
  // From the first device, which has the largest shard: all must agree.
  int64_t most =
      rows.rangeAt(local.mesh, Coordinates(local.mesh.rank(), 0)).size;
  int64_t width = tensorType(weight).getDimSize(1);
  int64_t chunks = graph::countHeadChunks(
      tensorType(input).getDimSize(0), most,
      graph::headChunkBytes(most * width, addsToGradient()));
  if (chunks > 1)
    return emitLoop(e, chunks);
  Chunk chunk = emitChunk(e, input, targets, cotangent);
  local.map.map(local.op->getResult(0), chunk.loss);
  if (!hasGradient())
    return;
  local.map.map(local.op->getResult(1), chunk.dInput);
  if (addsToGradient())
    local.map.map(local.op->getResult(2),
                  e.convert(chunk.dWeight, weightType()));
}

FailureOr<bool> sharding::emitLocalHead(LocalOp &local) {
  if (!isa<graph::LinearCrossEntropyOp, graph::LinearCrossEntropyGradOp>(
          local.op))
    return false;
  FailureOr<std::optional<Factor>> rows =
      cutRows(local, local.op->getOperand(1));
  if (failed(rows))
    return failure();
  if (!*rows)
    return false;
  Head(local, **rows).emit();
  return true;
}
