// A simulated schedule to look at.
#pragma once
#include <string>
#include <string_view>

#include "parallelism/pipeline/Schedule.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {

/// A schedule and what came of it, to be drawn.
struct Timeline {
  Schedule schedule;
  Simulation run;
};
/// Two loops over the same stages as one picture: nothing of the second begins
/// before all of the first is done. Its name says so; the lists are in one
/// behind the other, which is no schedule that `check` knows.
Timeline joined(Timeline first, const Timeline &second);

// All of them want the simulation of this very schedule.

/// A line a rank of `columns` characters: F, B, I, W or O (OVERLAP) for what
/// fills most of that piece of time, a dot where the rank waits; behind it
/// how busy the rank is and how many activations it holds at most.
std::string timelineText(const Schedule &schedule, const Simulation &run,
                         int columns = 100);

/// Chrome trace JSON, opens in Perfetto: a track a rank, another one for what
/// runs beside compute. `unit` is the length of the costs' unit in seconds.
std::string timelineTrace(const Schedule &schedule, const Simulation &run,
                          double unit = 1);

/// A picture of the same, complete in itself, for light and dark pages. What
/// an instruction is shows under the pointer.
std::string timelineSvg(const Schedule &schedule, const Simulation &run);

/// A page with the picture and a table of ranks. `unit` as above.
std::string timelineHtml(const Schedule &schedule, const Simulation &run,
                         double unit = 1);

/// Text as it can stand in a page or a picture.
std::string markupText(std::string_view text);

} // namespace tessera::pipeline
