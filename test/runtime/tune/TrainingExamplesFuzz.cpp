// libFuzzer target: whatever a body holds, it is examples or one error, and
// examples fit the batches.
#include "runtime/data/TokenDataset.h"
#include "runtime/tune/Examples.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

using namespace tessera;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static void check(const JsonValue &body, const tune::ExampleShape &shape) {
  auto examples = tune::readExamples(body["examples"], shape);
  if (!examples.ok()) {
    require(!examples.message().empty());
    return;
  }
  int64_t learned = 0, targets = 0;
  for (const tune::Example &example : *examples)
    learned += std::ranges::count(example.isLearned, true);
  auto packed = tune::PackedExamples::pack(*examples, shape);
  if (!packed.ok())
    return;
  for (size_t i = 0; i < packed->batches(); ++i) {
    const TokenBuffers batch = packed->batch(i);
    require(int64_t(batch.tokens.size()) == shape.rows * shape.sequence);
    targets += int64_t(batch.targets.size()) -
               std::ranges::count(batch.targets, ignoredTarget);
  }
  require(learned == targets);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto body = JsonValue::parse(
      std::string_view(reinterpret_cast<const char *>(data), size), "fuzz");
  if (!body.ok())
    return 0;
  check(*body, {2, 8, 300, 8, {.starts = true}});
  check(
      *body,
      {2,
       8,
       300,
       3,
       {.starts = true, .numbers = true, .reference = true, .samples = true}});
  return 0;
}
