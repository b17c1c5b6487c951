// attention, its gradient and paged_attention: what is verified, what they mean
// in primitives, gradients and sharding rules. Dimensions of the equations: b
// batch, t query token, s key token, k kv head, g query head of a kv head's
// group, d head_dim.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"
#include <limits>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- verifiers ------------------------------------------------------===//

// A sink is compared with scores before they are scaled.
template <typename Op> static LogicalResult verifySinks(Op op) {
  Value sinks = op.getSinks();
  if (!sinks)
    return success();
  if (op.getScale().convertToDouble() <= 0)
    return op.emitOpError("expects a scale above 0 with sinks");
  return expectShape(op, "sinks", tensorType(sinks),
                     {tensorType(op.getQuery()).getDimSize(2)});
}

// Kernels bound scores before they scale them.
template <typename Op> static LogicalResult verifyScores(Op op) {
  if (!op.getScale().isFinite())
    return op.emitOpError("expects a finite scale");
  if (op.getCap() && op.getScale().convertToDouble() <= 0)
    return op.emitOpError("expects a scale above 0 where scores have a cap");
  return verifyCap(op);
}

// What attention and its gradient have in common.
template <typename Op> static LogicalResult verifyAttention(Op op) {
  RankedTensorType query = tensorType(op.getQuery()),
                   key = tensorType(op.getKey()),
                   value = tensorType(op.getValue());
  if (failed(expectRank(op, "a query", query, 4)) ||
      failed(expectRank(op, "a key", key, 4)))
    return failure();
  int64_t heads = query.getDimSize(2), kvHeads = key.getDimSize(2);
  int64_t keys = op.getStart() ? key.getDimSize(1) : query.getDimSize(1);
  if (failed(expectShape(
          op, "a key", key,
          {query.getDimSize(0), keys, kvHeads, query.getDimSize(3)})) ||
      failed(expectShape(op, "a value", value, key.getShape())))
    return failure();
  if (kvHeads == 0 || heads % kvHeads)
    return op.emitOpError()
           << "expects heads to be a multiple of kv_heads, got " << heads
           << " and " << kvHeads;
  if (failed(expectSameElement(op, "query", query, "key", key)) ||
      failed(expectSameElement(op, "query", query, "value", value)))
    return failure();
  if (op.getWindow() && static_cast<int64_t>(*op.getWindow()) < 1)
    return op.emitOpError() << "expects a window of at least 1, got "
                            << static_cast<int64_t>(*op.getWindow());
  if (op.getLast() && !(op.getCausal() && op.getFirst()))
    return op.emitOpError("expects 'causal' and 'first' with 'last'");
  if (failed(verifyScores(op)))
    return failure();
  for (auto [value, name] :
       {std::pair(op.getFirst(), "first"), std::pair(op.getLast(), "last")})
    if (value &&
        failed(expectShape(op, name, tensorType(value),
                           {query.getDimSize(0), query.getDimSize(1)})))
      return failure();
  return success();
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this)) || failed(verifySinks(*this)))
    return failure();
  return expectSameElement(*this, "query", tensorType(getQuery()), "result",
                           tensorType(getResult()));
}

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyAttention(*this)))
    return failure();
  for (auto [value, what] : {std::pair(getOutput(), "an output"),
                             std::pair(getCotangent(), "a cotangent")})
    if (value.getType() != getQuery().getType())
      return emitOpError() << "expects " << what << " of the query's type, got "
                           << value.getType();
  return expectShape(*this, "an lse", tensorType(getLse()),
                     lseType(getQuery()).getShape());
}

LogicalResult PagedAttentionOp::verify() {
  RankedTensorType query = tensorType(getQuery()), keys = tensorType(getKeys()),
                   table = tensorType(getTable());
  if (failed(expectRank(*this, "a query", query, 4)) ||
      failed(expectRank(*this, "keys", keys, 4)) ||
      failed(expectRank(*this, "a page table", table, 2)))
    return failure();
  int64_t batch = query.getDimSize(0), heads = query.getDimSize(2),
          kvHeads = keys.getDimSize(2);
  if (failed(expectShape(*this, "keys", keys,
                         {keys.getDimSize(0), keys.getDimSize(1), kvHeads,
                          query.getDimSize(3)})) ||
      failed(expectShape(*this, "a page table", table,
                         {batch, table.getDimSize(1)})) ||
      failed(expectShape(*this, "starts", tensorType(getStarts()), {batch})))
    return failure();
  if (kvHeads == 0 || heads % kvHeads)
    return emitOpError() << "expects heads to be a multiple of kv_heads, got "
                         << heads << " and " << kvHeads;
  if (keys.getNumElements() == 0 || table.getDimSize(1) == 0)
    return emitOpError("expects at least one page of at least one key");
  if (failed(expectSameElement(*this, "query", query, "keys", keys)))
    return failure();
  if (getWindow() && static_cast<int64_t>(*getWindow()) < 1)
    return emitOpError() << "expects a window of at least 1, got "
                         << static_cast<int64_t>(*getWindow());
  return failed(verifySinks(*this)) ? failure() : verifyScores(*this);
}

//===--- meaning --------------------------------------------------------===//

namespace {
// What attention and its gradients are made of, besides cotangents.
struct AttentionInputs {
  Value query, key, value;
  Value start; // null: 0
  Value first; // [b, t]; null: 0
  Value last;  // [b, t]; null: the query's own
  double scale;
  bool causal;
  std::optional<uint64_t> window;
  std::optional<double> cap; // of scaled scores

  // Of an attention or its gradient.
  template <typename Op> static AttentionInputs of(Op op) {
    return {op.getQuery(),
            op.getKey(),
            op.getValue(),
            op.getStart(),
            op.getFirst(),
            op.getLast(),
            op.getScale().convertToDouble(),
            op.getCausal(),
            op.getWindow(),
            capOf(op)};
  }
};
} // namespace

// [batch, tokens, heads, head_dim] → [b, t, k, g, d]
static Value groupHeads(Emitter &e, Value x, Value key) {
  ArrayRef<int64_t> s = shapeOf(x);
  int64_t kvHeads = shapeOf(key)[2];
  return e.reshape(x, {s[0], s[1], kvHeads, s[2] / kvHeads, s[3]});
}

// [batch, heads, tokens] → the shape of `scores`, [b, k, g, t, s]
static Value spreadRows(Emitter &e, Value rows, Value scores) {
  ArrayRef<int64_t> shape = shapeOf(scores);
  return e.broadcastFirst(e.reshape(rows, shape.drop_back()), shape);
}

// Which (t, s) are visible, in the shape of `scores`; null if all are.
static Value visible(Emitter &e, const AttentionInputs &in, Value scores) {
  ArrayRef<int64_t> shape = shapeOf(scores);
  auto type =
      RankedTensorType::get(shape.take_back(2), e.builder().getI32Type());
  Value t = e.iota(type, 0), s = e.iota(type, 1), mask;
  if (in.start)
    t = e.add(t, e.broadcastScalar(in.start, type.getShape()));
  if (in.causal && !in.last)
    mask = e.compare(s, ComparePredicate::le, t);
  // A window at least as long as the sequence hides nothing.
  if (in.window &&
      (in.start || *in.window < static_cast<uint64_t>(shape.back()))) {
    Value near = e.compare(e.sub(t, s), ComparePredicate::lt,
                           e.splatLike(static_cast<double>(*in.window), t));
    mask = mask ? e.binary<AndOp>(mask, near) : near;
  }
  if (mask)
    mask = e.broadcast(mask, {3, 4}, shape);
  if (!in.first)
    return mask;
  s = e.broadcast(s, {3, 4}, shape);
  Value own =
      e.compare(s, ComparePredicate::ge, e.broadcast(in.first, {0, 3}, shape));
  if (in.last) {
    Value limit = e.max(e.broadcast(t, {3, 4}, shape),
                        e.broadcast(in.last, {0, 3}, shape));
    own = e.binary<AndOp>(own, e.compare(s, ComparePredicate::le, limit));
  }
  return mask ? e.binary<AndOp>(mask, own) : own;
}

// scale × q kᵀ, capped, in the statistics type, without the mask: [b, k, g, t,
// s]
static Value scaledScores(Emitter &e, const AttentionInputs &in) {
  Value scores = e.einsum("btkgd,bskd->bkgts", groupHeads(e, in.query, in.key),
                          in.key, statisticsType(in.query));
  return e.softCap(e.mul(scores, in.scale), in.cap);
}

namespace {
struct Probabilities {
  Value values, logSum;
};
} // namespace

// The softmax of masked scores [b, k, g, t, s], with the exponential of a sink
// of each head, [k * g], among what it divides by.
static Probabilities probabilities(Emitter &e, Value scores, Value sinks) {
  SmallVector<int64_t> shape(shapeOf(scores));
  Value all = scores;
  if (sinks) {
    SmallVector<int64_t> column = shape;
    column.back() = 1;
    Value byGroup =
        e.reshape(convertLike(e, sinks, scores), {shape[1], shape[2]});
    all = e.concat({scores, e.broadcast(byGroup, {1, 2}, column)}, 4);
  }
  Exponentials exps = exponentials(e, all);
  Value sum =
      e.max(exps.sum, e.splatLike(std::numeric_limits<float>::min(), exps.sum));
  Value p = e.div(exps.value, e.broadcastFirst(sum, shapeOf(all)));
  if (sinks)
    p = e.slice(p, SmallVector<int64_t>(shape.size()), shape);
  return {p, exps.logSum};
}

SmallVector<Value> AttentionOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  auto in = AttentionInputs::of(*this);
  Value scores = scaledScores(e, in);
  if (Value mask = visible(e, in, scores))
    scores =
        e.select(mask, scores,
                 e.splatLike(-std::numeric_limits<double>::infinity(), scores));
  auto [all, logSum] = probabilities(e, scores, getSinks());
  Value p = e.convert(all, tensorType(getValue()).getElementType());
  Value result = e.einsum("bkgts,bskd->btkgd", p, getValue());
  Value lse = e.convert(logSum, tensorType(getLse()).getElementType());
  return {e.reshape(result, shapeOf(getResult())),
          e.reshape(lse, shapeOf(getLse()))};
}

//===--- gradients ------------------------------------------------------===//

// Sums over head_dim of output × cotangent: [batch, heads, tokens].
static Value attentionRowSums(Emitter &e, Value output, Value cotangent) {
  Type type = statisticsType(output);
  Value sums =
      e.sumLast(e.mul(e.convert(output, type), e.convert(cotangent, type)));
  return e.transpose(sums, {0, 2, 1});
}

// Gradients of query, key, value. `lse` and `rowSums` (of dP ∘ P, less the
// cotangent of lse if it has one) are [batch, heads, tokens].
static SmallVector<Value> attentionGradients(Emitter &e,
                                             const AttentionInputs &in,
                                             Value lse, Value rowSums,
                                             Value cotangent) {
  Type type = statisticsType(in.query);
  Type narrow = tensorType(in.query).getElementType();
  Value scores = scaledScores(e, in);
  Value p = e.exp(e.sub(scores, spreadRows(e, e.convert(lse, type), scores)));
  if (Value mask = visible(e, in, scores))
    p = e.select(mask, p, e.splatLike(0.0, p));
  Value query = groupHeads(e, in.query, in.key);
  cotangent = groupHeads(e, cotangent, in.key);
  Value dP = e.einsum("btkgd,bskd->bkgts", cotangent, in.value, type);
  Value dScores = e.mul(p, e.sub(dP, spreadRows(e, rowSums, dP)));
  dScores = e.softCapGradient(dScores, scores, in.cap);
  dScores = e.convert(e.mul(dScores, in.scale), narrow);
  Value dQuery = e.einsum("bkgts,bskd->btkgd", dScores, in.key);
  return {e.reshape(dQuery, shapeOf(in.query)),
          e.einsum("bkgts,btkgd->bskd", dScores, query),
          e.einsum("bkgts,btkgd->bskd", e.convert(p, narrow), cotangent)};
}

SmallVector<Value> AttentionGradOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  auto in = AttentionInputs::of(*this);
  return attentionGradients(e, in, getLse(),
                            attentionRowSums(e, getOutput(), getCotangent()),
                            getCotangent());
}

// The gradient of sinks [heads]: the probability that a query gives to its
// sink, whose value is zero, times the negative of what `rowSums` are for
// others, summed over queries.
static Value sinkGradient(Emitter &e, AttentionOp op, Value rowSums) {
  Value lse = convertLike(e, op.getLse(), rowSums);
  Value sinks = e.broadcast(convertLike(e, op.getSinks(), rowSums), {1},
                            shapeOf(rowSums));
  Value terms = e.mul(e.exp(e.sub(sinks, lse)), rowSums);
  return convertLike(e, e.neg(e.sum(terms, {0, 2})), op.getSinks());
}

SmallVector<Value> AttentionOp::buildVjp(OpBuilder &builder,
                                         ValueRange cotangents) {
  Value g = cotangents[0], gLse = cotangents[1];
  if (!g && !gLse)
    return none(*this);
  Emitter e(builder, getLoc());
  if (!g)
    g = e.zeros(tensorType(getResult()));
  if (!gLse) {
    auto grad = builder.create<AttentionGradOp>(
        getLoc(), getQuery(), getKey(), getValue(), getResult(), getLse(), g,
        getStart(), getFirst(), getLast(), getScaleAttr(), getCausalAttr(),
        getWindowAttr(), getCapAttr());
    SmallVector<Value> result = none(*this);
    llvm::copy(grad.getResults(), result.begin());
    if (getSinks())
      result.back() =
          sinkGradient(e, *this, attentionRowSums(e, getResult(), g));
    return result;
  }
  // d lse / d scores is the probabilities, so that its cotangent joins the row
  // sums; no model asks for it in a hot loop, and primitives do.
  Value rowSums = attentionRowSums(e, getResult(), g);
  rowSums = e.sub(rowSums, convertLike(e, gLse, rowSums));
  SmallVector<Value> result = none(*this);
  llvm::copy(
      attentionGradients(e, AttentionInputs::of(*this), getLse(), rowSums, g),
      result.begin());
  if (getSinks())
    result.back() = sinkGradient(e, *this, rowSums);
  return result;
}

SmallVector<Value> AttentionGradOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}

SmallVector<Value> PagedAttentionOp::buildVjp(OpBuilder &, ValueRange) {
  return none(*this);
}

//===--- paged ----------------------------------------------------------===//

// Which (b, t, s) are visible in paged attention over `context` keys.
static Value visibleInPages(Emitter &e, PagedAttentionOp op, int64_t context) {
  auto type = RankedTensorType::get(
      {shapeOf(op.getQuery())[0], shapeOf(op.getQuery())[1], context},
      e.builder().getI32Type());
  auto ofBatch = [&](Value x) { return e.broadcast(x, {0}, type.getShape()); };
  Value t = e.add(ofBatch(op.getStarts()), e.iota(type, 1));
  Value s = e.iota(type, 2);
  Value seen = e.binary<AndOp>(
      e.compare(s, ComparePredicate::le, t),
      e.compare(s, ComparePredicate::lt, ofBatch(op.getLengths())));
  if (!op.getWindow())
    return seen;
  Value near = e.compare(e.sub(t, s), ComparePredicate::lt,
                         e.splatLike(static_cast<double>(*op.getWindow()), t));
  return e.binary<AndOp>(seen, near);
}

// The pages of each sequence, concatenated: [batch, context, kv_heads,
// head_dim]. Entries of the table after a sequence's last page may have any
// value.
static Value gatherPages(Emitter &e, Value cache, Value table) {
  ArrayRef<int64_t> pages = shapeOf(cache);
  Value ids = e.max(table, e.splatLike(0, table));
  ids = e.min(ids, e.splatLike(static_cast<double>(pages[0] - 1), table));
  Value rows = e.embedding(
      e.reshape(cache, {pages[0], pages[1] * pages[2] * pages[3]}), ids);
  return e.reshape(rows, {shapeOf(table)[0], shapeOf(table)[1] * pages[1],
                          pages[2], pages[3]});
}

SmallVector<Value> PagedAttentionOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value keys = gatherPages(e, getKeys(), getTable()),
        values = gatherPages(e, getValues(), getTable());
  Value visible = visibleInPages(e, *this, shapeOf(keys)[1]);
  AttentionInputs in{
      getQuery(), keys, values,      {}, {}, {}, getScale().convertToDouble(),
      true,       {},   capOf(*this)};
  Value scores = scaledScores(e, in);
  Value mask = e.broadcast(visible, {0, 3, 4}, shapeOf(scores));
  scores =
      e.select(mask, scores,
               e.splatLike(-std::numeric_limits<double>::infinity(), scores));
  // Values that no query attends to may be NaN, and 0 × NaN is not 0.
  Value seen =
      e.reduce(e.convert(visible, builder.getI32Type()), ReduceKind::max, {1});
  seen = e.compare(seen, ComparePredicate::ne, e.splatLike(0, seen));
  values = e.select(e.broadcast(seen, {0, 1}, shapeOf(values)), values,
                    e.splatLike(0, values));
  Value p = e.convert(probabilities(e, scores, getSinks()).values,
                      tensorType(values).getElementType());
  Value result = e.einsum("bkgts,bskd->btkgd", p, values);
  return {e.reshape(result, shapeOf(getResult()))};
}

//===--- sharding rules -------------------------------------------------===//

namespace {
// The loops of attention. Query head h reads kv head h / (heads / kv_heads),
// so query heads are kv_heads × the rest. Queries and keys of a token are one
// loop: a device has both or neither, and receives the other keys
// (LocalAttention.cpp). With a `start`, every device has all keys.
struct AttentionLoops {
  AttentionLoops(OpRule &rule, Value query, Value key, Value start,
                 LoopKind ofQueries) {
    auto type = tensorType(query);
    int64_t kvHeads = tensorType(key).getDimSize(2);
    batch = rule.loopDim(type.getDimSize(0));
    tokens = keys = rule.loopDim(type.getDimSize(1),
                                 start ? ofQueries : LoopKind::parallel);
    if (start)
      keys = rule.loopDim(tensorType(key).getDimSize(1), LoopKind::whole);
    heads = rule.loopDim(kvHeads);
    shared = rule.loopDim(type.getDimSize(2) / kvHeads, LoopKind::whole);
    width = rule.loopDim(type.getDimSize(3), LoopKind::whole);
  }
  OpRule::Dims query() const {
    return {{batch}, {tokens}, {heads, shared}, {width}};
  }
  OpRule::Dims key() const { return {{batch}, {keys}, {heads}, {width}}; }
  OpRule::Dims ofHeads() const { return {{heads, shared}}; }
  OpRule::Dims lse() const { return {{batch}, {heads, shared}, {tokens}}; }
  /// Adds the operands of the mask.
  template <typename Op> void addMask(OpRule &rule, Op op) const {
    if (op.getStart())
      rule.operands.emplace_back();
    for (Value ofQueries : {op.getFirst(), op.getLast()})
      if (ofQueries)
        rule.operands.push_back({{batch}, {tokens}});
  }

  unsigned batch, tokens, keys, heads, shared, width;
};
} // namespace

OpRule AttentionOp::getShardingRule() {
  OpRule rule;
  AttentionLoops l(rule, getQuery(), getKey(), getStart(), LoopKind::parallel);
  rule.operands = {l.query(), l.key(), l.key()};
  l.addMask(rule, *this);
  if (getSinks())
    rule.operands.push_back(l.ofHeads());
  rule.results = {l.query(), l.lse()};
  return rule;
}

OpRule AttentionGradOp::getShardingRule() {
  OpRule rule;
  AttentionLoops l(rule, getQuery(), getKey(), getStart(), LoopKind::sum);
  rule.operands = {l.query(), l.key(), l.key(), l.query(), l.lse(), l.query()};
  l.addMask(rule, *this);
  rule.results = {l.query(), l.key(), l.key()};
  return rule;
}

// query [batch, tokens, heads, head_dim], keys and values [pages, page,
// kv_heads, head_dim], table [batch, n], starts and lengths [batch]; heads are
// kv_heads × the rest, as in attention.
OpRule PagedAttentionOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims keys = rule.loopsOf(getKeys(), LoopKind::whole),
               table = rule.loopsOf(getTable(), LoopKind::whole);
  unsigned batch = table[0][0], heads = keys[2][0];
  rule.loops[batch].kind = rule.loops[heads].kind = LoopKind::parallel;
  ArrayRef<int64_t> query = tensorType(getQuery()).getShape();
  // With one kv head every device has it, and query heads are sharded instead.
  const int64_t kvHeads = rule.loops[heads].size;
  unsigned tokens = rule.loopDim(query[1], LoopKind::whole),
           shared = rule.loopDim(query[2] / kvHeads, kvHeads == 1
                                                         ? LoopKind::parallel
                                                         : LoopKind::whole);
  OpRule::Dims queries{{batch}, {tokens}, {heads, shared}, keys[3]};
  rule.operands = {queries, keys, keys, table, {{batch}}, {{batch}}};
  if (getSinks())
    rule.operands.push_back({{heads, shared}});
  rule.results = {queries};
  return rule;
}
