// The examples of a request, and the batches that programs take of them.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/data/TokenBatch.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <vector>

namespace tessera::tune {

/// A sequence. All but `tokens` have a number for each of them, about how it
/// follows from those before it; the first one's is not used.
struct Example {
  std::vector<int32_t> tokens;
  std::vector<bool> isLearned;
  /// Of the weights that sampled it, and of the reference model, in nats.
  std::vector<float> logProbs = {}, referenceLogProbs = {};
  std::vector<float> advantages = {};
};

/// What examples must have and batches hold.
struct ExampleShape {
  int64_t rows = 1, sequence = 1; ///< of a batch
  int64_t vocabulary = 1;
  int64_t documents = 1; ///< examples of a row at most
  DocumentInputs inputs;
};

/// Reads "examples" of a request's body: objects with "tokens" and, each with
/// as many numbers, "weights" (0 or 1, which are learned; all, if it is left
/// out) and, of sampled answers, "logprobs", "advantages" and
/// "reference_logprobs". Errors name the field.
StatusOr<std::vector<Example>> readExamples(const JsonValue &examples,
                                            const ExampleShape &shape);

/// Examples in rows, longest first, each in the first with room. Refers to the
/// examples.
class PackedExamples {
public:
  static constexpr std::size_t kMostRows = 4096;
  /// An error if they take more rows.
  static StatusOr<PackedExamples> pack(const std::vector<Example> &examples,
                                       const ExampleShape &shape);
  std::size_t batches() const;
  /// The rows of one of the batches that hold them all.
  TokenBuffers batch(std::size_t index) const;

private:
  explicit PackedExamples(const ExampleShape &shape) : shape(shape) {}
  struct Row {
    int64_t used = 0;
    std::vector<const Example *> examples;
  };
  ExampleShape shape;
  std::vector<Row> rows;
};

} // namespace tessera::tune
