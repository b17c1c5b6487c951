// libFuzzer target: whatever the bytes, what a Hugging Face directory says of
// generation is read or refused with one line.
#include "runtime/generate/ModelDirectory.h"
#include "test/support/RequireAnswer.h"

using namespace tessera;
using tessera::testing::requireAnswer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  requireAnswer(parseGenerationConfig(text, "generation_config.json"));
  return 0;
}
