// Llama (2302.13971, 2307.09288) and related families: norms, rotary positions,
// MLP, grouped queries. Mistral adds windows, Qwen2 biases, Qwen3 norms on
// queries and keys, Gemma norms after sub-layers and soft caps, Phi-3 fused
// matrices, Granite multipliers, GLM interleaved pairs, Cohere a parallel
// residual stream, StarCoder2 layer norms and an MLP without a gate, Mamba-2
// mixers instead of attention (Mixer.cpp), others
// experts. All of these are data in the spec, and so are module names
// (moduleNames).
#include "models/llama/Attention.h"
#include "models/moe/Routing.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {
namespace {

// Dropout sites; 0 is that of attention's probabilities.
enum : int64_t { attentionSite = 1, mlpSite, embeddingSite };

Value embed(const Scope &scope, Value tokens) {
  const std::string_view name = moduleNames(scope.spec).embedding;
  Emitter e = scope.at(name);
  Value x = e.embedding(scope.parameter(Twine(name) + ".weight"), tokens);
  double scale = scope.spec.embeddingScale;
  x = scale == 1 ? x : e.mul(x, scale);
  return scope.dropout(e, x, scope.spec.embeddingDropout, embeddingSite);
}

/// Queries, keys or values as [batch, tokens, heads, head_dim].
struct Heads {
  Value query, key, value;
};

Value splitHeads(const Scope &scope, Emitter &e, Value y, int64_t heads) {
  ArrayRef<int64_t> shape = tensorType(y).getShape();
  return e.reshape(y, {shape[0], shape[1], heads, scope.spec.headDim});
}

/// The parts of one matrix: all queries, all keys, all values; or those of each
/// head after those of the previous one.
Heads fusedHeads(const Scope &scope, Value x) {
  const ModelSpec &spec = scope.spec;
  const StringRef name = moduleNames(spec).qkv;
  Emitter e = scope.at(name);
  Value all = linear(scope, x, name, spec.qkvBias);
  ArrayRef<int64_t> shape = tensorType(all).getShape();
  if (spec.qkvLayout == QkvLayout::ByHead) {
    Value heads =
        e.reshape(all, {shape[0], shape[1], spec.heads, 3 * spec.headDim});
    auto part = [&](int64_t index) {
      return e.slice(heads, {0, 0, 0, index * spec.headDim},
                     {shape[0], shape[1], spec.heads, spec.headDim});
    };
    return {part(0), part(1), part(2)};
  }
  int64_t query = spec.queryWidth(), key = spec.keyValueWidth();
  auto part = [&](int64_t begin, int64_t width, int64_t heads) {
    return splitHeads(scope, e, columns(e, all, begin, width), heads);
  };
  return {part(0, query, spec.heads), part(query, key, spec.kvHeads),
          part(query + key, key, spec.kvHeads)};
}

Heads projectHeads(const Scope &scope, Value x) {
  const ModelSpec &spec = scope.spec;
  if (spec.qkvLayout != QkvLayout::Apart)
    return fusedHeads(scope, x);
  const ModuleNames names = moduleNames(spec);
  auto project = [&](StringRef name, int64_t heads, StringRef normName) {
    Emitter e = scope.at(name);
    Value y = linear(scope, x, name, spec.qkvBias);
    if (!normName.empty() && spec.qkNorm == QkNorm::Width)
      y = rmsNorm(scope, y, normName);
    return splitHeads(scope, e, y, heads);
  };
  return {project(names.query, spec.heads, names.queryNorm),
          project(names.key, spec.kvHeads, names.keyNorm),
          project(names.value, spec.kvHeads, "")};
}

Value plainAttention(const Scope &scope, Value x, const LayerKind &kind,
                     StringRef path) {
  const ModelSpec &spec = scope.spec;
  const ModuleNames names = moduleNames(spec);
  auto [query, key, value] = projectHeads(scope, x);
  auto normalize = [&](QkNorm when) {
    if (spec.qkNorm != when)
      return;
    query = rmsNorm(scope, query, names.queryNorm);
    key = rmsNorm(scope, key, names.keyNorm);
  };
  normalize(QkNorm::Head);
  if (auto frequencies = frequenciesOf(scope, x, kind)) {
    query = rotate(scope, query, *frequencies);
    key = rotate(scope, key, *frequencies);
  }
  normalize(QkNorm::AfterRope);
  return attention(scope, query, key, value, kind, path);
}

Value selfAttention(const Scope &scope, Value x, const LayerKind &kind) {
  const ModelSpec &spec = scope.spec;
  const StringRef output = moduleNames(spec).output;
  const StringRef path = output.rsplit('.').first;
  Value y = spec.latent ? latentAttention(scope, x, kind, path)
                        : plainAttention(scope, x, kind, path);
  y = linear(scope, y, output, spec.outputBias);
  Emitter e = scope.at(path);
  return scope.dropout(e, y, spec.residualDropout, attentionSite);
}

Value feedForward(const Scope &scope, Value x, const LayerKind &kind) {
  if (kind.sparse)
    return moeLayer(scope, x);
  const ModelSpec &spec = scope.spec;
  const ModuleNames names = moduleNames(spec);
  MlpNames matrices{"", std::string(names.up), "", std::string(names.down)};
  if (spec.fusedGateUp)
    matrices.gateUp = names.gateUp;
  else if (spec.gatedMlp)
    matrices.gate = names.gate;
  Value y = mlp(scope, x, matrices, spec.mlpBias);
  Emitter e = scope.at("mlp");
  return scope.dropout(e, y, spec.residualDropout, mlpSite);
}

Value layer(const Scope &scope, Value x, const LayerKind &kind) {
  const ResidualSpec &stream = scope.spec.residual;
  const ModuleNames names = moduleNames(scope.spec);
  Emitter residual = scope.at("residual");
  // The output of a sub-layer as it is added to the stream.
  auto added = [&](Value to, Value y, StringRef postNorm) {
    if (stream.postNorms)
      y = norm(scope, y, postNorm);
    return residual.add(to,
                        stream.scale == 1 ? y : residual.mul(y, stream.scale));
  };
  Value read = stream.preNorms ? norm(scope, x, names.attentionNorm) : x;
  Value y = added(
      x, kind.recurrent ? mixer(scope, read) : selfAttention(scope, read, kind),
      names.attentionPostNorm);
  if (!scope.spec.hasMlp())
    return y;
  if (stream.order == ResidualSpec::Serial)
    read = y;
  else if (stream.order == ResidualSpec::Parallel)
    read = x;
  if (stream.hasMlpNorm())
    read = norm(scope, read, names.mlpNorm);
  return added(y, feedForward(scope, read, kind), names.mlpPostNorm);
}

Value finish(const Scope &scope, Value x) {
  const StringRef name = moduleNames(scope.spec).norm;
  x = norm(scope, x, name);
  // Of the head's input instead of its logits, which a loss does not store.
  const double scale = scope.spec.logitScale;
  return scale == 1 ? x : scope.at(name).mul(x, scale);
}

} // namespace

const FamilyBuilder &llamaBuilder() {
  static const FamilyBuilder builder = {embed, layer, finish};
  return builder;
}

} // namespace tessera::models
