// GPT-2 (Radford et al. 2019): pre-norm blocks over token plus learned position
// embeddings. Module names are those of transformers' GPT2LMHeadModel.
#include "models/Builder.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {
namespace {

// Dropout sites; 0 is that of attention.
enum : int64_t { attentionSite = 1, mlpSite, embeddingSite };

constexpr const char *embeddingTable = "transformer.wte.weight";

Value embed(const Scope &scope, Value tokens) {
  const ModelSpec &spec = scope.spec;
  Emitter words = scope.at("transformer.wte");
  Value x = words.embedding(scope.parameter(embeddingTable), tokens);
  ArrayRef<int64_t> shape = tensorType(x).getShape();

  // Position t is row t of the table. [tokens, hidden] → [batch, tokens,
  // hidden]. Positions of padding in a bucket may exceed the table.
  Emitter positions = scope.at("transformer.wpe");
  Value table = scope.parameter("transformer.wpe.weight");
  if (Value at = scope.positions()) {
    at = positions.min(at,
                       positions.splatLike(double(spec.maxPositions - 1), at));
    x = positions.add(x, positions.embedding(table, at));
  } else {
    if (shape[1] < spec.maxPositions)
      table = positions.slice(table, {0, 0}, shape.drop_front());
    x = positions.add(x, positions.broadcast(table, {1, 2}, shape));
  }
  Emitter drop = scope.at("transformer.drop");
  return scope.dropout(drop, x, spec.embeddingDropout, embeddingSite);
}

/// Part `index` of the fused projection as [batch, tokens, heads, head_dim].
Value headsOf(const Scope &scope, Emitter &e, Value fused, int64_t index) {
  const ModelSpec &spec = scope.spec;
  ArrayRef<int64_t> shape = tensorType(fused).getShape();
  Value part = e.slice(fused, {0, 0, index * spec.hidden},
                       {shape[0], shape[1], spec.hidden});
  return e.reshape(part, {shape[0], shape[1], spec.heads, spec.headDim});
}

Value selfAttention(const Scope &scope, Value x, const LayerKind &kind) {
  Emitter e = scope.at("attn");
  Value fused = conv1d(scope, x, "attn.c_attn");
  Value y =
      attention(scope, headsOf(scope, e, fused, 0), headsOf(scope, e, fused, 1),
                headsOf(scope, e, fused, 2), kind, "attn");
  y = conv1d(scope, y, "attn.c_proj");
  return scope.dropout(e, y, scope.spec.residualDropout, attentionSite);
}

Value mlp(const Scope &scope, Value x) {
  Emitter e = scope.at("mlp");
  Value y = conv1d(scope, x, "mlp.c_fc");
  y = activation(e, y, scope.spec.activation);
  y = conv1d(scope, y, "mlp.c_proj");
  return scope.dropout(e, y, scope.spec.residualDropout, mlpSite);
}

Value layer(const Scope &scope, Value x, const LayerKind &kind) {
  Emitter residual = scope.at("residual");
  x = residual.add(x, selfAttention(scope, norm(scope, x, "ln_1"), kind));
  return residual.add(x, mlp(scope, norm(scope, x, "ln_2")));
}

Value finish(const Scope &scope, Value x) {
  return norm(scope, x, "transformer.ln_f");
}

} // namespace

const FamilyBuilder &gpt2Builder() {
  static const FamilyBuilder builder = {embed, layer, finish};
  return builder;
}

} // namespace tessera::models
