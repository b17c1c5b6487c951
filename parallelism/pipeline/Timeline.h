// A simulated schedule as text, trace or picture.
#pragma once
#include <string>
#include <string_view>

#include "parallelism/pipeline/Schedule.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {

/// A schedule and its simulation, to be drawn.
struct Timeline {
  Schedule schedule;
  Simulation run;
};
/// Two loops over the same stages as one picture: the second begins after all
/// of the first is done. The name says so. The lists are concatenated, which
/// `check` would reject.
Timeline joined(Timeline first, const Timeline &second);

// All of them require the simulation of the same schedule.

/// A line of `columns` characters for each rank: F, B, I, W or O (OVERLAP) for
/// the operation that takes most of the interval, a dot if the rank waits; then
/// how busy the rank is and how many activations it holds at most.
std::string timelineText(const Schedule &schedule, const Simulation &run,
                         int columns = 100);

/// Chrome trace JSON, opens in Perfetto: one track for each rank, another one
/// for its transfers. `unit` is the length of the costs' unit in seconds.
std::string timelineTrace(const Schedule &schedule, const Simulation &run,
                          double unit = 1);

/// An SVG of the same, complete in itself, for light and dark pages. Hovering
/// over a box shows its instruction.
std::string timelineSvg(const Schedule &schedule, const Simulation &run);

/// A page with the picture and a table of ranks. `unit` as above.
std::string timelineHtml(const Schedule &schedule, const Simulation &run,
                         double unit = 1);

/// Escapes a string for HTML and SVG.
std::string markupText(std::string_view text);

} // namespace tessera::pipeline
