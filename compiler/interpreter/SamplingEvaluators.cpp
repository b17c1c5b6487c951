// The choice of tokens, row by row.
#include "compiler/interpreter/Evaluators.h"
#include "dialects/graph/GraphSamplingOps.h"
#include "runtime/support/TokenChoice.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::interpreter;

namespace {

// Row `number` of a tensor.
struct Row {
  const double *data;
  int64_t size;

  Row(const Tensor &tensor, int64_t number)
      : size(tensor.size() / tensor.shape[0]) {
    data = tensor.data.data() + number * size;
  }
  /// The word with the bits of a signed integer.
  uint32_t word(int64_t i) const {
    return static_cast<uint32_t>(static_cast<int64_t>(data[i]));
  }
};

} // namespace

static std::vector<float> adjusted(const Row &logits, const Row &allowed,
                                   const Row &changed, const Row &changes) {
  std::vector<float> result(logits.data, logits.data + logits.size);
  for (int64_t i = 0; i < changed.size; ++i) {
    const double *each = changes.data + 4 * i;
    auto token = static_cast<int64_t>(changed.data[i]);
    if (token < 0 || token >= logits.size)
      continue;
    result[token] =
        LogitChange{static_cast<float>(each[0]), static_cast<float>(each[1]),
                    static_cast<float>(each[2]), static_cast<float>(each[3])}
            .of(result[token]);
  }
  for (int64_t token = 0; token < logits.size; ++token)
    if (!(allowed.word(token % allowed.size) >> (token / allowed.size) & 1))
      result[token] = -std::numeric_limits<float>::infinity();
  return result;
}

static llvm::Expected<Tensor> evaluateSample(graph::SampleOp op, Operands in) {
  Tensor result(graph::tensorType(op.getResult()).getShape());
  for (int64_t row = 0; row < result.size(); ++row) {
    Row options(*in[4], row), limits(*in[5], row);
    TokenChoice choice{static_cast<float>(options.data[0]),
                       static_cast<float>(options.data[1]), limits.word(0),
                       limits.word(1),
                       limits.word(2) | uint64_t(limits.word(3)) << 32};
    result.data[row] = chooseToken(
        adjusted({*in[0], row}, {*in[1], row}, {*in[2], row}, {*in[3], row}),
        choice);
  }
  return result;
}

void tessera::interpreter::addSamplingEvaluators(EvaluatorTable &table) {
  table.add(evaluateSample);
}
