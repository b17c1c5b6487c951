// libFuzzer target: whatever the bytes, a table of a schedule is read or
// refused with one line; what is read is well formed, comes back as it was, and
// is checked, simulated and lowered without harm.
#include <cstdlib>

#include "parallelism/pipeline/Check.h"
#include "parallelism/pipeline/Lower.h"
#include "parallelism/pipeline/Simulate.h"

using namespace tessera;
using namespace tessera::pipeline;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static bool isOneLine(const std::string &message) {
  return !message.empty() && message.find('\n') == std::string::npos;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  auto schedule = parseCsv(text, "fuzz");
  if (!schedule.ok()) {
    require(isOneLine(schedule.message()));
    return 0;
  }
  require(checkForm(*schedule).ok());
  auto again = parseCsv(toCsv(*schedule), "again");
  require(again.ok() && again->lists == schedule->lists &&
          again->placement == schedule->placement &&
          again->forwardOnly == schedule->forwardOnly &&
          again->slots == schedule->slots);
  const Status status = check(*schedule);
  require(status.ok() || isOneLine(status.message()));
  auto run = simulate(*schedule);
  // What passes the check runs without standing still for transfers, too.
  require(run.ok() || isOneLine(run.message()));
  require(run.ok() || !status.ok());
  if (!status.ok() || schedule->isLowered())
    return 0;
  LowerOptions options;
  options.unsharded = 2;
  auto lowered = lower(*schedule, options);
  require(lowered.ok() && check(*lowered).ok());
  return 0;
}
