#include "runtime/train/WallClock.h"
#include "runtime/train/Metrics.h"

#include <fmt/format.h>

namespace tessera {

std::string WallClock::describe() const {
  auto share = [&](double seconds) { return 100 * seconds / total(); };
  return fmt::format("goodput: {} tokens/s of wall-clock; {:.1f} % in steps, "
                     "{:.1f} % waiting for data, {:.1f} % evaluating, {:.1f} % "
                     "saving",
                     shortNumber(goodput()), share(steps), share(reading),
                     share(evaluating), share(saving));
}

} // namespace tessera
