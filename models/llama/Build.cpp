// Llama (2302.13971, 2307.09288) and its kin: RMS norms, rotary positions,
// gated MLP, grouped queries. Mistral adds windows, Qwen2 biases, Qwen3 norms
// on queries and keys, others experts: all of it data in the spec. Module names
// are those of transformers' LlamaForCausalLM.
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
  return e.embedding(scope.parameter(embeddingTable), tokens);
}

/// A projection split into heads: [batch, tokens, heads, head_dim].
Value project(const Scope &scope, Value x, StringRef name, int64_t heads,
              StringRef normName) {
  const ModelSpec &spec = scope.spec;
  Value y = linear(scope, x, name, spec.qkvBias);
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  y = scope.at(name).reshape(y, {shape[0], shape[1], heads, spec.headDim});
  return spec.qkNorm && !normName.empty() ? norm(scope, y, normName) : y;
}

Value rotate(const Scope &scope, Value x, const RopeFrequencies &frequencies) {
  Emitter e = scope.at("self_attn.rotary_emb");
  OpBuilder &b = scope.builder;
  return b.create<graph::RopeOp>(
      e.location(), x.getType(), x,
      scope.cache ? scope.cache->positions : Value(),
      b.getDenseF64ArrayAttr(frequencies.inverseFrequencies),
      b.getF64FloatAttr(frequencies.attentionScaling), UnitAttr());
}

Value selfAttention(const Scope &scope, Value x, const LayerKind &kind) {
  const ModelSpec &spec = scope.spec;
  Value query =
      project(scope, x, "self_attn.q_proj", spec.heads, "self_attn.q_norm");
  Value key =
      project(scope, x, "self_attn.k_proj", spec.kvHeads, "self_attn.k_norm");
  Value value = project(scope, x, "self_attn.v_proj", spec.kvHeads, "");
  RopeFrequencies frequencies = ropeFrequencies(
      spec, scope.cache ? scope.cache->context : tensorType(x).getDimSize(1));
  query = rotate(scope, query, frequencies);
  key = rotate(scope, key, frequencies);
  Value y = attention(scope, query, key, value, kind, "self_attn");
  return linear(scope, y, "self_attn.o_proj", spec.outputBias);
}

Value layer(const Scope &scope, Value x, const LayerKind &kind) {
  Emitter residual = scope.at("residual");
  Value y = selfAttention(scope, norm(scope, x, "input_layernorm"), kind);
  x = residual.add(x, y);
  y = norm(scope, x, "post_attention_layernorm");
  y = kind.sparse ? moeLayer(scope, y)
                  : gatedMlp(scope, y, "mlp", scope.spec.mlpBias);
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
