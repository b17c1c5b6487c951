// BERT (Devlin et al. 2018): post-norm layers over token, position and token
// type embeddings. Module names are those of transformers' BertModel; its
// pooler is part of a cross-encoder's head (BuildEncoder.cpp).
#include "models/Builder.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {
namespace {

constexpr const char *embeddingTable = "embeddings.word_embeddings.weight";

/// Position t is row t of the table: [batch, tokens, hidden]. A bucket may be
/// longer than the table; sequences are not.
Value positions(const Scope &scope, ArrayRef<int64_t> shape) {
  Emitter e = scope.at("embeddings.position_embeddings");
  Value table = scope.parameter("embeddings.position_embeddings.weight");
  const int64_t rows = scope.spec.maxPositions;
  if (shape[1] <= rows) {
    if (shape[1] < rows)
      table = e.slice(table, {0, 0}, shape.drop_front());
    return e.broadcast(table, {1, 2}, shape);
  }
  auto ids = RankedTensorType::get(shape.drop_back(), e.builder().getI32Type());
  Value at = e.iota(ids, 1);
  at = e.min(at, e.splatLike(double(rows - 1), at));
  return e.embedding(table, at);
}

/// Row 0 of the table for tokens of the first text, row 1 for those of the
/// second: [batch, tokens, hidden].
Value types(const Scope &scope, ArrayRef<int64_t> shape) {
  Emitter e = scope.at("embeddings.token_type_embeddings");
  Value table = scope.parameter("embeddings.token_type_embeddings.weight");
  auto row = [&](int64_t index) {
    Value row = e.slice(table, {index, 0}, {1, shape[2]});
    return e.broadcastLast(e.reshape(row, {shape[2]}), shape);
  };
  if (!scope.secondBegins)
    return row(0);
  auto ids = RankedTensorType::get(shape.drop_back(), e.builder().getI32Type());
  Value begins = e.broadcast(scope.secondBegins, {0}, ids.getShape());
  Value isFirst =
      e.compare(e.iota(ids, 1), graph::ComparePredicate::lt, begins);
  return e.select(e.broadcast(isFirst, {0, 1}, shape), row(0), row(1));
}

Value embed(const Scope &scope, Value tokens) {
  Emitter words = scope.at("embeddings.word_embeddings");
  Value x = words.embedding(scope.parameter(embeddingTable), tokens);
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  x = scope.at("embeddings.token_type_embeddings").add(x, types(scope, shape));
  Emitter sum = scope.at("embeddings");
  x = sum.add(x, positions(scope, shape));
  return norm(scope, x, "embeddings.LayerNorm");
}

Value selfAttention(const Scope &scope, Value x, const LayerKind &kind) {
  const ModelSpec &spec = scope.spec;
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  auto heads = [&](const char *module) {
    Emitter e = scope.at(module);
    return e.reshape(linear(scope, x, module, spec.qkvBias),
                     {shape[0], shape[1], spec.heads, spec.headDim});
  };
  Value query = heads("attention.self.query"),
        key = heads("attention.self.key"),
        value = heads("attention.self.value");
  Value y = attention(scope, query, key, value, kind, "attention.self");
  return linear(scope, y, "attention.output.dense", spec.outputBias);
}

Value mlp(const Scope &scope, Value x) {
  Value y = linear(scope, x, "intermediate.dense", scope.spec.mlpBias);
  Emitter e = scope.at("intermediate");
  y = activation(e, y, scope.spec.activation);
  return linear(scope, y, "output.dense", scope.spec.mlpBias);
}

Value layer(const Scope &scope, Value x, const LayerKind &kind) {
  Emitter attended = scope.at("attention.output"), output = scope.at("output");
  x = attended.add(selfAttention(scope, x, kind), x);
  x = norm(scope, x, "attention.output.LayerNorm");
  x = output.add(mlp(scope, x), x);
  return norm(scope, x, "output.LayerNorm");
}

Value finish(const Scope &, Value x) { return x; }

} // namespace

const FamilyBuilder &bertBuilder() {
  static const FamilyBuilder builder = {embed, layer, finish};
  return builder;
}

} // namespace tessera::models
