// Llama (2302.13971, 2307.09288) and related families: RMS norms, rotary
// positions, gated MLP, grouped queries. Mistral adds windows, Qwen2 biases,
// Qwen3 norms on queries and keys, Gemma norms after sub-layers and soft caps,
// Phi-3 fused matrices, others experts. All of these are data in the spec.
// Module names are those of transformers' LlamaForCausalLM.
#include "models/Builder.h"
#include "models/Rope.h"
#include "models/moe/Routing.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {
namespace {

constexpr const char *embeddingTable = "model.embed_tokens.weight";

Value embed(const Scope &scope, Value tokens) {
  Emitter e = scope.at("model.embed_tokens");
  Value x = e.embedding(scope.parameter(embeddingTable), tokens);
  double scale = scope.spec.embeddingScale;
  return scale == 1 ? x : e.mul(x, scale);
}

/// Queries, keys or values as [batch, tokens, heads, head_dim].
struct Heads {
  Value query, key, value;
};

Heads projectHeads(const Scope &scope, Value x) {
  const ModelSpec &spec = scope.spec;
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  auto split = [&](Emitter &e, Value y, int64_t heads) {
    return e.reshape(y, {shape[0], shape[1], heads, spec.headDim});
  };
  if (spec.fusedProjections) {
    Emitter e = scope.at("self_attn.qkv_proj");
    Value all = linear(scope, x, "self_attn.qkv_proj", spec.qkvBias);
    int64_t query = spec.queryWidth(), key = spec.keyValueWidth();
    return {split(e, columns(e, all, 0, query), spec.heads),
            split(e, columns(e, all, query, key), spec.kvHeads),
            split(e, columns(e, all, query + key, key), spec.kvHeads)};
  }
  auto project = [&](StringRef name, int64_t heads) {
    Emitter e = scope.at(name);
    return split(e, linear(scope, x, name, spec.qkvBias), heads);
  };
  return {project("self_attn.q_proj", spec.heads),
          project("self_attn.k_proj", spec.kvHeads),
          project("self_attn.v_proj", spec.kvHeads)};
}

Value rotate(const Scope &scope, Value x, const RopeFrequencies &frequencies) {
  Emitter e = scope.at("self_attn.rotary_emb");
  OpBuilder &b = scope.builder;
  SmallVector<int64_t> shape(tensorType(x).getShape());
  int64_t turning = scope.spec.rotaryWidth(), rest = shape[3] - turning;
  if (rest > 0) {
    Value unrotated =
        e.slice(x, {0, 0, 0, turning}, {shape[0], shape[1], shape[2], rest});
    shape[3] = turning;
    Value rotated = rotate(scope, e.slice(x, {0, 0, 0, 0}, shape), frequencies);
    return e.concat({rotated, unrotated}, 3);
  }
  return b.create<graph::RopeOp>(
      e.location(), x.getType(), x, scope.positions(),
      b.getDenseF64ArrayAttr(frequencies.inverseFrequencies),
      b.getF64FloatAttr(frequencies.attentionScaling), UnitAttr());
}

Value selfAttention(const Scope &scope, Value x, const LayerKind &kind) {
  const ModelSpec &spec = scope.spec;
  auto [query, key, value] = projectHeads(scope, x);
  if (spec.qkNorm) {
    query = norm(scope, query, "self_attn.q_norm");
    key = norm(scope, key, "self_attn.k_norm");
  }
  RopeFrequencies frequencies =
      ropeFrequencies(spec, kind.local ? *spec.localRope : *spec.rope,
                      scope.context(tensorType(x).getDimSize(1)));
  query = rotate(scope, query, frequencies);
  key = rotate(scope, key, frequencies);
  Value y = attention(scope, query, key, value, kind, "self_attn");
  return linear(scope, y, "self_attn.o_proj", spec.outputBias);
}

Value layer(const Scope &scope, Value x, const LayerKind &kind) {
  const ModelSpec &spec = scope.spec;
  Emitter residual = scope.at("residual");
  Value y = selfAttention(scope, norm(scope, x, "input_layernorm"), kind);
  if (spec.postNorms)
    y = norm(scope, y, "post_attention_layernorm");
  x = residual.add(x, y);
  y = norm(scope, x,
           spec.postNorms ? "pre_feedforward_layernorm"
                          : "post_attention_layernorm");
  y = kind.sparse ? moeLayer(scope, y)
                  : gatedMlp(scope, y, "mlp", spec.mlpBias);
  if (spec.postNorms)
    y = norm(scope, y, "post_feedforward_layernorm");
  return residual.add(x, y);
}

Value finish(const Scope &scope, Value x) {
  return norm(scope, x, "model.norm");
}

} // namespace

const FamilyBuilder &llamaBuilder() {
  static const FamilyBuilder builder = {embed, layer, finish, embeddingTable};
  return builder;
}

} // namespace tessera::models
