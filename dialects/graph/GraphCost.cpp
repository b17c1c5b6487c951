// Work and traffic that do not follow from element counts alone.
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera::graph;

int64_t tessera::graph::detail::countElements(ValueRange values) {
  int64_t count = 0;
  for (Value value : values)
    count += tensorType(value).getNumElements();
  return count;
}

int64_t tessera::graph::detail::countBytes(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values) {
    RankedTensorType type = tensorType(value);
    // A boolean takes a byte.
    bytes += type.getNumElements() *
             llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  }
  return bytes;
}

int64_t EinsumOp::getFlops() {
  Einsum equation = llvm::cantFail(Einsum::parse(getEquation()));
  int64_t terms = 1;
  for (char letter : equation.summed())
    terms *=
        Einsum::sizeOf(letter, equation.lhs, tensorType(getLhs()).getShape());
  return 2 * terms * tensorType(getResult()).getNumElements();
}

// Pairs (query, key) in which the key is visible, of one head and sequence, at
// most: where queries start is not known.
static int64_t countVisibleFromAnywhere(int64_t tokens, int64_t keys,
                                        std::optional<uint64_t> window) {
  auto most = static_cast<uint64_t>(keys);
  return tokens * static_cast<int64_t>(std::min(window.value_or(most), most));
}

// The same if query t has the position of key t.
static int64_t countVisible(int64_t tokens, bool causal,
                            std::optional<uint64_t> window) {
  int64_t visible = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    int64_t end = causal ? t + 1 : tokens;
    int64_t begin = 0;
    if (window)
      begin = std::max<int64_t>(0, t - static_cast<int64_t>(*window) + 1);
    visible += end - begin;
  }
  return visible;
}

// One pass over the visible scores multiplies them with one [tokens, head_dim].
template <typename Op> static int64_t flopsOfOnePass(Op op) {
  ArrayRef<int64_t> shape = tensorType(op.getQuery()).getShape();
  int64_t pairs =
      op.getStart()
          ? countVisibleFromAnywhere(
                shape[1], tensorType(op.getKey()).getDimSize(1), op.getWindow())
          : countVisible(shape[1], op.getCausal(), op.getWindow());
  return 2 * shape[0] * shape[2] * shape[3] * pairs;
}

// q kᵀ and p v.
int64_t AttentionOp::getFlops() { return 2 * flopsOfOnePass(*this); }

// q kᵀ again, dP = dO vᵀ, dV = pᵀ dO, dQ = dS k, dK = dSᵀ q.
int64_t AttentionGradOp::getFlops() { return 5 * flopsOfOnePass(*this); }

// As if every sequence filled its pages: lengths are data.
int64_t PagedAttentionOp::getFlops() {
  int64_t context = tensorType(getTable()).getDimSize(1) *
                    tensorType(getKeys()).getDimSize(1);
  if (getWindow())
    context = std::min<int64_t>(context, *getWindow());
  return 4 * tensorType(getQuery()).getNumElements() * context;
}

// One contraction of [tokens, width] with [vocab, width].
static int64_t flopsOfLogits(Value input, Value weight) {
  return 2 * tensorType(input).getNumElements() *
         tensorType(weight).getDimSize(0);
}

int64_t LinearCrossEntropyOp::getFlops() {
  return flopsOfLogits(getInput(), getWeight());
}

// The logits, dInput and dWeight.
int64_t LinearCrossEntropyGradOp::getFlops() {
  return 3 * flopsOfLogits(getInput(), getWeight());
}

int64_t ClusterOp::getFlops() {
  int64_t flops = 0;
  for (Operation &op : getBody().front())
    if (auto costed = dyn_cast<Costed>(op))
      flops += costed.getFlops();
  return flops;
}
