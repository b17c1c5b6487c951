// Rotary positions of queries and keys.
#include "models/llama/Attention.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

/// Elements 0, 2, 4, … of each head, then 1, 3, 5, …: pairs that are neighbours
/// become the halves that graph.rope rotates. Queries and keys are permuted in
/// the same way, so their products are those of the given order, which nothing
/// else reads.
static Value halvesOfPairs(Emitter &e, Value x) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  Value pairs = e.reshape(x, {shape[0], shape[1], shape[2], shape[3] / 2, 2});
  return e.reshape(e.transpose(pairs, {0, 1, 2, 4, 3}), shape);
}

std::optional<RopeFrequencies> frequenciesOf(const Scope &scope, Value x,
                                             const LayerKind &kind) {
  if (!kind.rotates)
    return {};
  const ModelSpec &spec = scope.spec;
  return ropeFrequencies(spec, kind.local ? *spec.localRope : *spec.rope,
                         scope.context(tensorType(x).getDimSize(1)));
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
  if (scope.spec.interleavedRope)
    x = halvesOfPairs(e, x);
  return b.create<graph::RopeOp>(
      e.location(), x, scope.positions(),
      b.getDenseF64ArrayAttr(frequencies.inverseFrequencies),
      b.getF64FloatAttr(frequencies.attentionScaling), UnitAttr());
}

} // namespace tessera::models
