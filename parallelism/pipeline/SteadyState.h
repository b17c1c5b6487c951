// The periodic part of a rank's list: between its warm-up and its cool-down a
// schedule repeats the same instructions, of later microbatches each time.
#pragma once
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// Instruction `begin` + k of the list is that of `begin` + k + `length`,
/// `microbatches` earlier, for all k in the first `trips` - 1 repetitions.
struct SteadyState {
  size_t begin = 0;
  size_t length = 0;    ///< instructions of one trip
  int microbatches = 0; ///< by which one trip is after the one before
  int trips = 0;        ///< 0: the list has no periodic part
  /// What a stage keeps of a microbatch is free before the trip that follows
  /// `inFlight` trips later keeps the same of its own. So with a loop of that
  /// many trips each slot in flight can have one place.
  int inFlight = 1;

  size_t end() const { return begin + length * size_t(trips); }
  /// Instructions that are left if one trip replaces all.
  size_t countWritten(const InstructionList &list) const {
    return list.size() - length * size_t(trips ? trips - 1 : 0);
  }
};

/// Trips shorter than this have as many microbatches as are in flight. A
/// transfer does not overlap with the next trip, so trips should be long
/// compared with it.
inline constexpr int kFewestInTrip = 4;

/// Of the periods of a lowered schedule's list the one that leaves the fewest
/// instructions, if it has two trips or more; of two the shorter. It begins
/// after every kind of work of every stage has come once, so that sums have a
/// term already, or earlier if that saves the work of `kFewestInTrip`
/// microbatches. Lists of several ranks have periods of their own: transfers
/// meet by their order, which is that of the list.
SteadyState findSteadyState(const InstructionList &list);

} // namespace tessera::pipeline
