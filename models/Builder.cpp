// Sub-layers that several families share.
#include "models/Builder.h"
#include "dialects/graph/GraphQuantOps.h"
#include "runtime/weights/AdapterNames.h"

#include <limits>

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

// Random streams: @init uses those from 0, dropout those from here.
constexpr int64_t dropoutStream = int64_t(1) << 30;

Value Scope::parameter(const Twine &name) const {
  auto found = values.find(name.str());
  assert(found != values.end() &&
         "a builder may only use parameters that parameters() lists");
  return found->second;
}

Emitter Scope::at(StringRef path) const {
  return Emitter(builder, NameLoc::get(builder.getStringAttr(path)));
}

Value Scope::dropout(Emitter &e, Value x, double rate, int64_t site) const {
  if (rate == 0 || !random.seed)
    return x;
  return builder.create<graph::DropoutOp>(
      e.location(), x, random.seed, random.step, random.offset,
      builder.getF64FloatAttr(rate),
      builder.getI64IntegerAttr(dropoutStream + site));
}

Value Scope::noise(Emitter &e, ArrayRef<int64_t> shape, int64_t site) const {
  return builder.create<graph::RandomOp>(
      e.location(), RankedTensorType::get(shape, builder.getF32Type()),
      random.seed, random.step, random.offset, dropoutStream + site,
      graph::RandomKind::normal);
}

static Value addBias(const Scope &scope, Emitter &e, Value x, StringRef name) {
  Value bias = scope.parameter(name + ".bias");
  return e.add(x, e.broadcastLast(bias, tensorType(x).getShape()));
}

/// Whether the layer's rows have magnitudes.
static bool hasMagnitudes(const Scope &scope, StringRef name) {
  const std::optional<AdapterSpec> &adapter = scope.spec.adapter;
  return adapter && adapter->hasMagnitudes() &&
         adapter->adapts(std::string_view(name));
}

/// `y`, the layer's result for `x`, with that of each row's own adapter. A row
/// without one gets zeros, and no row reads another's factors. With magnitudes
/// B has them, and those of the slot are what `y` is multiplied by, minus 1.
static Value addSlots(const Scope &scope, Value x, Value y, StringRef in,
                      StringRef out, StringRef magnitude) {
  Emitter first = scope.at(in), second = scope.at(out);
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  const int64_t rows = shape[0] * shape[1];
  auto product = [&](Emitter &e, Value lhs, const Twine &factors,
                     bool transposed) {
    return e.groupedMatmul(lhs, scope.parameter(factors),
                           scope.adapters.offsets, transposed);
  };
  Value low = product(first, first.reshape(x, {rows, shape[2]}), in + ".weight",
                      /*transposed=*/true);
  ArrayRef<int64_t> result = tensorType(y).getShape();
  Value added = product(second, low, out + ".weight", /*transposed=*/false);
  added = second.reshape(added, result);
  if (magnitude.empty())
    return second.add(y, added);
  Emitter third = scope.at(magnitude);
  Value ones = third.splat(1, tensorType(y).clone({rows, 1}));
  Value more = product(third, ones, magnitude, /*transposed=*/false);
  y = third.add(y, third.mul(y, third.reshape(more, result)));
  return second.add(y, added);
}

/// m / |W + scale B A| of each row, [out], where the norm is not differentiated
/// (section 4.3 of arXiv 2402.09353). |W|^2 is constant, and the rest of the
/// square is what each row of B has in common with 2 scale W A^T + scale^2 B
/// (A A^T), so that no matrix of W's size is made.
static Value rowScales(const Scope &scope, StringRef name, StringRef in,
                       StringRef out, bool transposed) {
  Emitter e = scope.at((name + kMagnitude).str());
  const double scale =
      scope.spec.adapter->recipe.scaleOf(std::string_view(name));
  Value a = scope.parameter(in + ".weight"),
        b = scope.parameter(out + ".weight"),
        norm = scope.parameter(name + kWeightNorm);
  Value first = e.einsum(transposed ? "rk,kn->rn" : "rk,nk->rn", a,
                         scope.parameter(name + ".weight"));
  Value second = e.einsum("rq,nq->rn", e.einsum("rk,qk->rq", a, a), b);
  Value both = e.add(e.mul(first, 2 * scale), e.mul(second, scale * scale));
  Value squares = e.mul(norm, norm);
  Value sum = e.add(squares, e.sum(e.mul(e.transpose(b, {1, 0}), both), {0}));
  // Below this part of |W|^2 the sum is rounding; rows of zeros stay zeros.
  constexpr double kLeastPart = 0x1p-20, kTiny = 1e-30;
  sum = e.max(sum, e.add(e.mul(squares, kLeastPart), kTiny));
  Value inverse = e.unary<graph::RsqrtOp>(sum);
  inverse.getDefiningOp()->setAttr(graph::kStopGradientAttr,
                                   scope.builder.getUnitAttr());
  return e.mul(scope.parameter(name + kMagnitude), inverse);
}

/// A use of random numbers of its own for each linear layer of a block.
static int64_t dropoutSite(const Scope &scope, StringRef name) {
  constexpr int64_t first = 1000; // other sites of a block are fewer
  int64_t site = first;
  for (LayerParts parts : scope.spec.kindsOfLayers())
    for (const Parameter &each : layerParameters(scope.spec, parts)) {
      if (StringRef(each.name) == (name + ".weight").str())
        return site;
      ++site;
    }
  llvm::report_fatal_error("a linear layer has no weight: " + name);
}

/// `y`, the layer's result for `x`, with that of its factors. With magnitudes
/// it lacks the layer's bias.
static Value addAdapter(const Scope &scope, Value x, Value y, StringRef name,
                        bool transposed) {
  const std::optional<AdapterSpec> &adapter = scope.spec.adapter;
  if (!adapter || !adapter->adapts(std::string_view(name)))
    return y;
  auto factor = [&](std::string_view suffix) {
    return name.str() + std::string(suffix);
  };
  const std::string in = factor(kAdapterIn), out = factor(kAdapterOut);
  if (adapter->slots() > 0)
    return addSlots(scope, x, y, in, out,
                    adapter->hasMagnitudes() ? factor(kMagnitude) : "");
  Emitter first = scope.at(in), second = scope.at(out);
  const recipe::AdapterRecipe &recipe = adapter->recipe;
  if (recipe.dropout > 0)
    x = scope.dropout(first, x, recipe.dropout, dropoutSite(scope, name));
  Value low = first.einsum("btk,rk->btr", x, scope.parameter(in + ".weight"));
  low = first.mul(low, recipe.scaleOf(std::string_view(name)));
  y = second.add(
      y, second.einsum("btr,nr->btn", low, scope.parameter(out + ".weight")));
  if (!adapter->hasMagnitudes())
    return y;
  Emitter third = scope.at(factor(kMagnitude));
  Value scales = rowScales(scope, name, in, out, transposed);
  return third.mul(y, third.broadcastLast(scales, tensorType(y).getShape()));
}

/// The product `y` of `x` with the matrix, with bias and adapter. A magnitude
/// does not multiply the bias.
static Value finishLinear(const Scope &scope, Value x, Value y, StringRef name,
                          bool bias, bool transposed) {
  const bool biasLast = hasMagnitudes(scope, name);
  if (biasLast)
    y = addAdapter(scope, x, y, name, transposed);
  if (bias) {
    Emitter e = scope.at(name);
    y = addBias(scope, e, y, name);
  }
  return biasLast ? y : addAdapter(scope, x, y, name, transposed);
}

static void noteInput(const Scope &scope, Value x, StringRef name) {
  auto reads = [&](const auto &each) { return each.second == x; };
  if (scope.inputs && llvm::none_of(*scope.inputs, reads))
    scope.inputs->push_back({name.str(), x});
}

Value linear(const Scope &scope, Value x, StringRef name, bool bias) {
  noteInput(scope, x, name);
  Emitter e = scope.at(name);
  Value y = e.einsum("btk,nk->btn", x, scope.parameter(name + ".weight"));
  return finishLinear(scope, x, y, name, bias, /*transposed=*/false);
}

Value conv1d(const Scope &scope, Value x, StringRef name) {
  Emitter e = scope.at(name);
  Value y = e.einsum("btk,kn->btn", x, scope.parameter(name + ".weight"));
  return finishLinear(scope, x, y, name, /*bias=*/true, /*transposed=*/true);
}

Value columns(Emitter &e, Value x, int64_t begin, int64_t count) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  return e.slice(x, {0, 0, begin}, {shape[0], shape[1], count});
}

Value mlp(const Scope &scope, Value x, const MlpNames &names, bool bias) {
  // Slices and products are located at the MLP itself.
  Emitter e = scope.at(StringRef(names.down).rsplit('.').first);
  auto activated = [&](Value y) {
    return activation(e, y, scope.spec.activation);
  };
  Value inner;
  if (!names.gateUp.empty()) {
    Value both = linear(scope, x, names.gateUp, bias);
    const int64_t width = tensorType(both).getDimSize(2) / 2;
    inner = e.mul(activated(columns(e, both, 0, width)),
                  columns(e, both, width, width));
  } else if (!names.gate.empty()) {
    Value gate = linear(scope, x, names.gate, bias);
    inner = e.mul(activated(gate), linear(scope, x, names.up, bias));
  } else {
    inner = activated(linear(scope, x, names.up, bias));
  }
  return linear(scope, inner, names.down, bias);
}

Value rmsNorm(const Scope &scope, Value x, StringRef name) {
  return scope.at(name).rmsNorm(x, scope.parameter(name + ".weight"),
                                scope.spec.normEps,
                                scope.spec.normPlusOne ? 1 : 0);
}

Value norm(const Scope &scope, Value x, StringRef name) {
  if (scope.spec.norm == NormKind::RmsNorm)
    return rmsNorm(scope, x, name);
  Value bias = scope.spec.normBias ? scope.parameter(name + ".bias") : Value();
  return scope.at(name).layerNorm(x, scope.parameter(name + ".weight"), bias,
                                  scope.spec.normEps);
}

Value activation(Emitter &e, Value x, Activation kind) {
  switch (kind) {
  case Activation::Gelu:
    return e.gelu(x, graph::GeluKind::erf);
  case Activation::GeluTanh:
    return e.gelu(x, graph::GeluKind::tanh);
  case Activation::QuickGelu:
    return e.gelu(x, graph::GeluKind::quick);
  case Activation::Silu:
    return e.unary<graph::SiluOp>(x);
  case Activation::Relu:
    return e.unary<graph::ReluOp>(x);
  }
  llvm_unreachable("every activation is built");
}

SmallVector<Value> Documents::all() const {
  SmallVector<Value> values;
  for (Value each : {first, positions, promptEnds})
    if (each)
      values.push_back(each);
  return values;
}

/// Mask of keys s that each query t attends to, i1 in the shape of `scores` [b,
/// k, g, t, s].
static Value visible(Emitter &e, Value scores, int64_t window,
                     const Documents &documents) {
  ArrayRef<int64_t> shape = tensorType(scores).getShape();
  auto type =
      RankedTensorType::get(shape.take_back(2), e.builder().getI32Type());
  Value t = e.iota(type, 0), s = e.iota(type, 1);
  auto spread = [&](Value ofPairs) {
    return e.broadcast(ofPairs, {3, 4}, shape);
  };
  auto ofQueries = [&](Value each) { return e.broadcast(each, {0, 3}, shape); };
  Value mask;
  auto require = [&](Value condition) {
    mask = mask ? e.binary<graph::AndOp>(mask, condition) : condition;
  };
  if (Value ends = documents.promptEnds)
    require(e.compare(spread(s), graph::ComparePredicate::le,
                      e.max(spread(t), ofQueries(ends))));
  else
    require(spread(e.compare(s, graph::ComparePredicate::le, t)));
  if (window > 0)
    require(spread(e.compare(e.sub(t, s), graph::ComparePredicate::lt,
                             e.splatLike(double(window), t))));
  if (documents.first)
    require(e.compare(spread(s), graph::ComparePredicate::ge,
                      ofQueries(documents.first)));
  return mask;
}

/// The logits of the layer's attention sinks [heads]; null without.
static Value sinksOf(const Scope &scope) {
  return scope.spec.attentionSinks
             ? scope.parameter(moduleNames(scope.spec).sinks)
             : Value();
}

/// Attention in primitives, because the tiled op does not support dropout of
/// the probabilities. Dimensions: k kv head, g query head of its group.
static Value droppedAttention(const Scope &scope, Emitter &e, Value query,
                              Value key, Value value, const LayerKind &kind) {
  const ModelSpec &spec = scope.spec;
  ArrayRef<int64_t> shape = tensorType(query).getShape();
  Value grouped = e.reshape(query, {shape[0], shape[1], spec.kvHeads,
                                    spec.heads / spec.kvHeads, shape[3]});
  Value scores = e.mul(e.einsum("btkgd,bskd->bkgts", grouped, key), kind.scale);
  scores = e.softCap(scores, spec.scoreCap);
  Value hidden = e.splatLike(-std::numeric_limits<double>::infinity(), scores);
  scores = e.select(visible(e, scores, kind.window, scope.documents), scores,
                    hidden);
  const SmallVector<int64_t> keys(tensorType(scores).getShape());
  Value sinks = sinksOf(scope);
  if (sinks) {
    SmallVector<int64_t> column = keys;
    column.back() = 1;
    Value byGroup = e.reshape(sinks, {keys[1], keys[2]});
    scores = e.concat({scores, e.broadcast(byGroup, {1, 2}, column)}, 4);
  }
  Value p = e.unary<graph::SoftmaxOp>(scores);
  if (sinks)
    p = e.slice(p, SmallVector<int64_t>(keys.size()), keys);
  p = scope.dropout(e, p, spec.attentionDropout, /*site=*/0);
  return e.einsum("bkgts,bskd->btkgd", p, value);
}

static FloatAttr capOf(const Scope &scope) {
  std::optional<double> cap = scope.spec.scoreCap;
  return cap ? scope.builder.getF64FloatAttr(*cap) : FloatAttr();
}

/// `cache` with rows of [batch, tokens, kv_heads, head_dim] written to their
/// slots.
static Value append(Emitter &e, Value cache, Value rows, Value slots) {
  ArrayRef<int64_t> pages = tensorType(cache).getShape(),
                    shape = tensorType(rows).getShape();
  int64_t width = pages[2] * pages[3];
  Value flat = e.reshape(cache, {pages[0] * pages[1], width});
  rows = e.reshape(rows, {shape[0], shape[1], width});
  return e.reshape(e.scatterRows(rows, slots, flat), pages);
}

/// Writes rows into `cache`, quantized if it is int8 and has `scales`, and
/// returns the dequantized cache. So attention reads the new rows with the same
/// rounding as cached ones.
static Value appendRows(Emitter &e, Value &cache, Value &scales, Value rows,
                        Value slots) {
  if (!scales) {
    cache = append(e, cache, rows, slots);
    return cache;
  }
  OpBuilder &b = e.builder();
  auto rounded = b.create<graph::QuantizeRowsOp>(e.location(), rows);
  cache = append(e, cache, rounded.getValues(), slots);
  scales = append(e, scales, rounded.getScales(), slots);
  return b.create<graph::DequantizeRowsOp>(
      e.location(), tensorType(cache).clone(tensorType(rows).getElementType()),
      cache, scales);
}

static Value cachedAttention(const Scope &scope, Emitter &e, Value query,
                             Value key, Value value, const LayerKind &kind) {
  KvCache &cache = *scope.cache;
  Value keys = appendRows(e, cache.keys, cache.keyScales, key, cache.slots);
  Value values =
      value ? appendRows(e, cache.values, cache.valueScales, value, cache.slots)
            : keys;
  OpBuilder &b = scope.builder;
  return b.create<graph::PagedAttentionOp>(
      e.location(), query, keys, values, cache.table, cache.queryStarts,
      cache.lengths, sinksOf(scope), b.getF64FloatAttr(kind.scale),
      kind.window > 0 ? b.getI64IntegerAttr(kind.window) : IntegerAttr(),
      capOf(scope), cache.f32 ? b.getUnitAttr() : UnitAttr());
}

/// Bidirectional attention as paged attention: queries are positioned after the
/// last key, so they attend to all keys of their sequence. The pages are those
/// of the keys themselves, sequence after sequence.
static Value encoderAttention(const Scope &scope, Emitter &e, Value query,
                              Value key, Value value, const LayerKind &kind) {
  const WholeSequences &whole = *scope.whole;
  ArrayRef<int64_t> shape = tensorType(key).getShape();
  const int64_t perSequence = shape[1] / whole.page,
                pages = shape[0] * perSequence;
  SmallVector<int64_t> paged = {pages, whole.page, shape[2], shape[3]};
  OpBuilder &b = scope.builder;
  Value table = e.iota(RankedTensorType::get({pages}, b.getI32Type()), 0);
  Value starts = e.splatLike(double(shape[1]), whole.lengths);
  return b.create<graph::PagedAttentionOp>(
      e.location(), query, e.reshape(key, paged), e.reshape(value, paged),
      e.reshape(table, {shape[0], perSequence}), starts, whole.lengths,
      /*sinks=*/Value(), b.getF64FloatAttr(kind.scale), IntegerAttr(),
      capOf(scope), /*keep_f32=*/UnitAttr());
}

Value attentionHeads(const Scope &scope, Value query, Value key, Value value,
                     const LayerKind &kind, StringRef path) {
  Emitter e = scope.at(path);
  OpBuilder &b = scope.builder;
  ArrayRef<int64_t> shape = tensorType(query).getShape();
  if (scope.whole && !scope.whole->isCausal)
    return encoderAttention(scope, e, query, key, value, kind);
  if (scope.cache)
    return cachedAttention(scope, e, query, key, value, kind);
  if (scope.drops() && scope.spec.attentionDropout > 0)
    return e.reshape(droppedAttention(scope, e, query, key, value, kind),
                     shape);
  auto op = b.create<graph::AttentionOp>(
      e.location(), query, key, value,
      /*start=*/Value(), scope.documents.first, scope.documents.promptEnds,
      sinksOf(scope), b.getF64FloatAttr(kind.scale), b.getUnitAttr(),
      kind.window > 0 ? b.getI64IntegerAttr(kind.window) : IntegerAttr(),
      capOf(scope));
  return op.getResult();
}

Value attention(const Scope &scope, Value query, Value key, Value value,
                const LayerKind &kind, StringRef path) {
  Emitter e = scope.at(path);
  Value y = attentionHeads(scope, query, key, value, kind, path);
  ArrayRef<int64_t> shape = tensorType(y).getShape();
  return e.reshape(y, {shape[0], shape[1], shape[2] * shape[3]});
}

} // namespace tessera::models
