// libFuzzer target: whatever the bytes, what stands before and beside the
// weights of a model's file is read or refused with one line. The first line is
// taken for the key of the rest as well.
#include "runtime/generate/PackagedModel.h"
#include "test/support/RequireAnswer.h"

using namespace tessera;
using tessera::testing::requireAnswer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  requireAnswer(parseImageHead(text, uint64_t(1) << 40));
  requireAnswer(parseImageHead(text, size));
  const std::string_view key = text.substr(0, text.find('\n'));
  requireAnswer(PackagedModel::readFiles(key, text.substr(key.size())));
  return 0;
}
