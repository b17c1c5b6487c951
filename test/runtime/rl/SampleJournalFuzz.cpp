// libFuzzer target: whatever a line of a journal holds, it is a group or one
// error; and a group is printed as it was read.
#include "runtime/rl/SampleJournal.h"
#include "runtime/support/Hash.h"

#include <cstdint>
#include <cstdlib>

using namespace tessera::rl;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // With the check of what it holds, or all lines would end there.
  std::string line(reinterpret_cast<const char *>(data), size);
  line += fmt::format(", \"check\": \"{:016x}\"}}",
                      tessera::hash64(std::as_bytes(std::span(line))));
  auto group = parseGroup(line, "fuzz:1");
  if (!group.ok()) {
    require(!group.message().empty());
    require(group.message().find('\n') == std::string::npos);
    return 0;
  }
  const std::string printed = printGroup(*group);
  auto again = parseGroup(
      std::string_view(printed).substr(0, printed.size() - 1), "fuzz:1");
  require(again.ok() && printGroup(*again) == printed);
  return 0;
}
