// Multi-head latent attention (DeepSeek-V2, 2405.04434, section 2.1). Training
// expands latents to keys and values of each head. Inference caches latents,
// and multiplies queries and results by the projection instead ("absorbed"):
// with key = U c, a score q . (U c) is (U^T q) . c, so that all heads read one
// key per token, which is its value, too.
#include "models/llama/Attention.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {
namespace {

constexpr double latentEps = 1e-6; // of these norms in the reference

Value latentNorm(const Scope &scope, Value x, StringRef name) {
  return scope.at(name).rmsNorm(x, scope.parameter(name + ".weight"), latentEps,
                                0);
}

/// Elements [begin, begin + count) of each head.
Value ofHeads(Emitter &e, Value x, int64_t begin, int64_t count) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  shape.back() = count;
  return e.slice(x, {0, 0, 0, begin}, shape);
}

/// Zeros after each head's elements, up to `width`.
Value padded(Emitter &e, Value x, int64_t width) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  if (shape[3] == width)
    return x;
  shape[3] = width;
  return e.pad(x, {0, 0, 0, 0}, shape);
}

class LatentAttention {
public:
  LatentAttention(const Scope &scope, Value x, const LayerKind &kind,
                  StringRef path)
      : scope(scope), spec(scope.spec), latent(*spec.latent),
        names(moduleNames(spec)), kind(kind), path(path), e(scope.at(path)) {
    frequencies = *frequenciesOf(scope, x, kind);
    ArrayRef<int64_t> shape = tensorType(x).getShape();
    batch = shape[0], tokens = shape[1];
    projectQueries(x);
    compress(x);
  }

  Value emit() {
    const bool absorbs = scope.cache && scope.cache->holdsLatents;
    Value y = absorbs ? absorbed() : expanded();
    return e.reshape(y, {batch, tokens, spec.outputWidth()});
  }

private:
  void projectQueries(Value x) {
    Value all;
    if (latent.queryRank) {
      Value down = linear(scope, x, names.queryDown, spec.qkvBias);
      down = latentNorm(scope, down, names.queryDownNorm);
      all = linear(scope, down, names.queryUp, /*bias=*/false);
    } else {
      all = linear(scope, x, names.query, /*bias=*/false);
    }
    all = e.reshape(all, {batch, tokens, spec.heads, spec.headDim});
    query = ofHeads(e, all, 0, latent.unrotated);
    rotatedQuery = rotate(
        scope, ofHeads(e, all, latent.unrotated, latent.rotated), frequencies);
  }

  void compress(Value x) {
    Value compressed = linear(scope, x, names.latent, spec.qkvBias);
    latents = latentNorm(scope, columns(e, compressed, 0, latent.rank),
                         names.latentNorm);
    Value ropePart = columns(e, compressed, latent.rank, latent.rotated);
    rotatedKey =
        rotate(scope, e.reshape(ropePart, {batch, tokens, 1, latent.rotated}),
               frequencies);
  }

  /// Each head's own keys and values. Heads are as wide as the wider of both.
  Value expanded() {
    Value up = linear(scope, latents, names.latentUp, /*bias=*/false);
    up = e.reshape(
        up, {batch, tokens, spec.heads, latent.unrotated + latent.valueDim});
    SmallVector<int64_t> shape = {batch, tokens, spec.heads, latent.rotated};
    Value shared =
        e.broadcast(e.reshape(rotatedKey, {batch, tokens, latent.rotated}),
                    {0, 1, 3}, shape);
    Value key = e.concat({ofHeads(e, up, 0, latent.unrotated), shared}, 3);
    Value value = ofHeads(e, up, latent.unrotated, latent.valueDim);
    const int64_t width = latent.paddedHeadDim();
    Value all = e.concat({query, rotatedQuery}, 3);
    Value y =
        attentionHeads(scope, padded(e, all, width), padded(e, key, width),
                       padded(e, value, width), kind, path);
    return ofHeads(e, y, 0, latent.valueDim);
  }

  /// The part of kv_b_proj that makes keys, or that which makes values: [heads,
  /// elements, rank].
  Value expansion(Emitter &at, int64_t begin, int64_t count) {
    Value all = at.reshape(
        scope.parameter(names.latentUp + Twine(".weight")),
        {spec.heads, latent.unrotated + latent.valueDim, latent.rank});
    return at.slice(all, {0, begin, 0}, {spec.heads, count, latent.rank});
  }

  Value absorbed() {
    Emitter up = scope.at(names.latentUp);
    Value folded =
        up.einsum("bthn,hnr->bthr", query, expansion(up, 0, latent.unrotated));
    Value key = e.concat(
        {e.reshape(latents, {batch, tokens, 1, latent.rank}), rotatedKey}, 3);
    Value y = attentionHeads(scope, e.concat({folded, rotatedQuery}, 3), key,
                             Value(), kind, path);
    return up.einsum("bthr,hvr->bthv", ofHeads(e, y, 0, latent.rank),
                     expansion(up, latent.unrotated, latent.valueDim));
  }

  const Scope &scope;
  const ModelSpec &spec;
  const LatentSpec &latent;
  const ModuleNames names;
  const LayerKind &kind;
  StringRef path;
  Emitter e;
  RopeFrequencies frequencies;
  int64_t batch, tokens;
  Value query, rotatedQuery; ///< [batch, tokens, heads, elements]
  Value latents;             ///< [batch, tokens, rank]
  Value rotatedKey;          ///< [batch, tokens, 1, rotated]
};

} // namespace

Value latentAttention(const Scope &scope, Value x, const LayerKind &kind,
                      StringRef path) {
  return LatentAttention(scope, x, kind, path).emit();
}

} // namespace tessera::models
