// The mixer of Mamba-2 (2405.21060, section 7): a projection, a convolution of
// few tokens, the scan, a gated norm and a projection. Inference keeps the
// convolution's last inputs and the scan's state for each sequence.
#include "dialects/graph/GraphScanOps.h"
#include "models/llama/Attention.h"

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::shapeOf;
using tessera::graph::tensorType;

namespace tessera::models {
namespace {

// Work within chunks grows with their size, that between chunks with the square
// of their number for states and with the cube for their decays, which are few.
// With these the matmuls of a chunk cost the most, up to some 64k tokens.
int64_t chunkOf(int64_t tokens) {
  return tokens <= 4096 ? 64 : tokens <= 16384 ? 128 : 256;
}

class Mixer {
public:
  Mixer(const Scope &scope, Value x)
      : scope(scope), mixer(*scope.spec.stateSpace),
        path(moduleNames(scope.spec).mixer), e(scope.at(path)),
        batch(shapeOf(x)[0]), tokens(shapeOf(x)[1]) {
    if (scope.cache)
      findSequences();
  }

  Value emit(Value x) {
    Value all = linear(scope, x, name("in_proj"), mixer.bias);
    Value gate = columns(e, all, 0, mixer.width()),
          mixed = columns(e, all, mixer.width(), mixer.channels()),
          step = columns(e, all, mixer.width() + mixer.channels(), mixer.heads);
    mixed = activation(e, convolved(mixed), scope.spec.activation);
    Value y = gated(scanned(mixed, step), gate);
    return linear(scope, y, name("out_proj"), mixer.bias);
  }

private:
  std::string name(const char *part) const { return (path + "." + part).str(); }

  /// A new sequence begins from zeros, whatever its slot holds.
  void findSequences() {
    const KvCache &cache = *scope.cache;
    Value zero = e.zeros(tensorType(cache.starts));
    isNew = e.compare(cache.starts, ComparePredicate::eq, zero);
    slots = e.max(cache.sequences, zero);
    counts = e.sub(cache.lengths, cache.starts);
  }

  /// What [slots, …] holds of each sequence, [batch, …].
  Value stateOf(Value all) {
    SmallVector<int64_t> shape(shapeOf(all));
    const int64_t width = tensorType(all).getNumElements() / shape[0];
    Value rows = e.embedding(e.reshape(all, {shape[0], width}), slots);
    rows = e.select(e.broadcast(isNew, {0}, shapeOf(rows)),
                    e.zeros(tensorType(rows)), rows);
    shape[0] = batch;
    return e.reshape(rows, shape);
  }

  void keep(Value &all, Value rows) {
    SmallVector<int64_t> shape(shapeOf(all));
    const int64_t width = tensorType(all).getNumElements() / shape[0];
    Value flat = e.reshape(all, {shape[0], width});
    all = e.reshape(e.scatterRows(e.reshape(rows, {batch, width}),
                                  scope.cache->sequences, flat),
                    shape);
  }

  /// x after the kernel - 1 tokens before it.
  Value withEarlier(Value x) {
    const int64_t earlier = mixer.kernel - 1, all = earlier + tokens,
                  width = mixer.channels();
    if (!scope.cache)
      return e.pad(x, {0, earlier, 0}, {batch, all, width});
    KvCache &cache = *scope.cache;
    Value both = e.concat({stateOf(cache.inputs), x}, 1);
    if (tokens == 1) {
      keep(cache.inputs, e.slice(both, {0, 1, 0}, {batch, earlier, width}));
      return both;
    }
    // The last of those that count.
    auto type =
        RankedTensorType::get({batch, earlier}, scope.builder.getI32Type());
    Value row = e.iota(type, 0);
    row = e.add(e.mul(row, double(all)), e.iota(type, 1));
    row = e.add(row, e.broadcast(counts, {0}, type.getShape()));
    keep(cache.inputs, e.embedding(e.reshape(both, {batch * all, width}), row));
    return both;
  }

  /// The causal convolution of each channel by itself.
  Value convolved(Value x) {
    Emitter conv = scope.at(name("conv1d"));
    const int64_t width = mixer.channels();
    Value all = withEarlier(x);
    ArrayRef<int64_t> shape = shapeOf(x);
    Value weight = scope.parameter(name("conv1d.weight")), y;
    for (int64_t k = 0; k < mixer.kernel; ++k) {
      Value column =
          conv.reshape(conv.slice(weight, {0, 0, k}, {width, 1, 1}), {width});
      Value term = conv.mul(conv.slice(all, {0, k, 0}, shape),
                            conv.broadcastLast(column, shape));
      term = ofDocument(conv, term, mixer.kernel - 1 - k);
      y = y ? conv.add(y, term) : term;
    }
    if (!mixer.convBias)
      return y;
    Value bias = scope.parameter(name("conv1d.bias"));
    return conv.add(y, conv.broadcastLast(bias, shape));
  }

  /// x, zero where the token `distance` before is of another document.
  Value ofDocument(Emitter &at, Value x, int64_t distance) {
    Value positions = scope.documents.positions;
    if (!positions || distance == 0)
      return x;
    Value same = at.compare(positions, ComparePredicate::ge,
                            at.splatLike(double(distance), positions));
    return at.select(at.broadcast(same, {0, 1}, shapeOf(x)), x,
                     at.zeros(tensorType(x)));
  }

  Value scanned(Value mixed, Value step) {
    const int64_t shared = mixer.groups * mixer.state;
    Value x = e.reshape(columns(e, mixed, 0, mixer.width()),
                        {batch, tokens, mixer.heads, mixer.headDim});
    auto vectors = [&](int64_t begin) {
      return e.reshape(columns(e, mixed, begin, shared),
                       {batch, tokens, mixer.groups, mixer.state});
    };
    Value rate = e.neg(e.exp(scope.parameter(name("A_log"))));
    KvCache *cache = scope.cache;
    Value initial = cache ? stateOf(cache->states) : Value();
    OpBuilder &b = scope.builder;
    auto state = RankedTensorType::get(
        {batch, mixer.heads, mixer.headDim, mixer.state}, b.getF32Type());
    auto scan = b.create<graph::StateSpaceScanOp>(
        e.location(), TypeRange{x.getType(), state}, x, step, rate,
        vectors(mixer.width()), vectors(mixer.width() + shared),
        scope.parameter(name("D")), scope.parameter(name("dt_bias")),
        scope.documents.first, tokens > 1 ? counts : Value(), initial,
        b.getI64IntegerAttr(chunkOf(tokens)),
        b.getF64FloatAttr(mixer.leastStep),
        mixer.mostStep ? b.getF64FloatAttr(*mixer.mostStep) : FloatAttr());
    if (cache) {
      scan->setAttr(graph::kKeepF32Attr, b.getUnitAttr());
      keep(cache->states, scan.getLast());
    }
    return e.reshape(scan.getResult(), {batch, tokens, mixer.width()});
  }

  /// The norm of y × silu(gate), of each group by itself.
  Value gated(Value y, Value gate) {
    Emitter norm = scope.at(name("norm"));
    y = norm.mul(y, norm.unary<graph::SiluOp>(gate));
    Value weight = scope.parameter(name("norm.weight"));
    const double eps = scope.spec.normEps;
    if (mixer.groups == 1)
      return norm.rmsNorm(y, weight, eps);
    const int64_t width = mixer.width() / mixer.groups;
    Value grouped = norm.reshape(y, {batch, tokens, mixer.groups, width});
    Value ones = norm.splat(
        1, RankedTensorType::get({width}, tensorType(weight).getElementType()));
    Value normed = norm.reshape(norm.rmsNorm(grouped, ones, eps), shapeOf(y));
    return norm.mul(normed, norm.broadcastLast(weight, shapeOf(y)));
  }

  const Scope &scope;
  const StateSpaceSpec &mixer;
  StringRef path;
  Emitter e;
  int64_t batch, tokens;
  /// Of a run over a cache: whether sequences are new, their slots, and tokens
  /// that count; all [batch].
  Value isNew, slots, counts;
};

} // namespace

Value mixer(const Scope &scope, Value x) { return Mixer(scope, x).emit(x); }

} // namespace tessera::models
