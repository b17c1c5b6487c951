// libFuzzer target: whatever the bytes, a task file is read or refused with one
// line, and what is read keeps its promises.
#include "runtime/eval/TaskFile.h"

#include <cstdint>
#include <cstdlib>

using namespace tessera::eval;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  auto file = parseTaskFile(text, "fuzz");
  if (!file.ok()) {
    require(!file.message().empty());
    require(file.message().find('\n') == std::string::npos);
    return 0;
  }
  require(!file->tasks.empty());
  for (const Task &task : file->tasks)
    require(!task.name.empty() && !task.data.empty() && task.maxTokens > 0 &&
            task.limit >= 0 && task.window >= 0 && task.shots >= 0 &&
            task.shots <= 1000 && task.judgeMaxTokens > 0 &&
            !task.verdict.empty());
  for (const Gate &gate : file->gates)
    require(!gate.task.empty() && !gate.metric.empty());
  return 0;
}
