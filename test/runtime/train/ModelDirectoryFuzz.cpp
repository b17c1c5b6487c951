// libFuzzer target: whatever the bytes, what a Hugging Face directory says of
// generation is read or refused with one line.
#include "runtime/train/ModelDirectory.h"

#include <cstdlib>

using namespace tessera;

template <typename T> static void requireAnswer(const StatusOr<T> &result) {
  if (!result.ok() && (result.message().empty() ||
                       result.message().find('\n') != std::string::npos))
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  requireAnswer(parseGenerationConfig(text, "generation_config.json"));
  return 0;
}
