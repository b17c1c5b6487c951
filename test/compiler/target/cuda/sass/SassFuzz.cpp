// libFuzzer target: whatever nvdisasm prints, it is read or refused with one
// line, and what is read can be followed.
#include <cstdint>
#include <cstdlib>

#include "compiler/target/cuda/sass/Trace.h"

using namespace tessera::sass;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto functions = parse({reinterpret_cast<const char *>(data), size});
  if (!functions.ok()) {
    require(!functions.message().empty());
    require(functions.message().find('\n') == std::string::npos);
    return 0;
  }
  Surroundings around;
  around.threads = 128;
  around.blocks = 1;
  around.arguments = {0x1000, 0x2000};
  Latencies latencies;
  latencies.most = 10'000;
  for (const Function &function : *functions)
    trace(decode(function), around, latencies);
  return 0;
}
