#include "parallelism/pipeline/SteadyState.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tessera::pipeline {
namespace {

/// Positions at which a stage starts and ends to keep something of one
/// microbatch.
struct Life {
  size_t first, last;
};

class PeriodSearch {
public:
  explicit PeriodSearch(const InstructionList &list) : list(list) {
    std::set<std::pair<Op, int32_t>> kinds;
    for (size_t k = 0; k < list.size(); ++k) {
      const Instruction &each = list[k];
      if (each.work.microbatch < 0)
        continue;
      if (kinds.emplace(each.op, each.work.stage).second)
        warm = k + 1;
      microbatches = std::max(microbatches, each.work.microbatch + 1);
      lives.try_emplace({each.work.stage, each.work.microbatch}, Life{k, k})
          .first->second.last = k;
    }
    perMicrobatch =
        microbatches
            ? size_t(std::ranges::count_if(list,
                                           [](const Instruction &each) {
                                             return each.work.microbatch == 0;
                                           }))
            : 0;
  }

  SteadyState find() const {
    const SteadyState late = findFrom(warm), early = findFrom(0);
    const size_t least = perMicrobatch * size_t(kFewestInTrip);
    return early.countWritten(list) + least <= late.countWritten(list) ? early
                                                                       : late;
  }

private:
  SteadyState findFrom(size_t from) const {
    SteadyState best;
    // A loop has at least its body written.
    auto isTooLong = [&](int shift) {
      return best.trips &&
             perMicrobatch * size_t(shift) >= best.countWritten(list);
    };
    for (int shift = 1; shift <= microbatches / 2 && !isTooLong(shift); ++shift)
      if (SteadyState found = findFor(shift, from);
          found.trips >= 2 &&
          (!best.trips || found.countWritten(list) < best.countWritten(list)))
        best = found;
    return best;
  }

  bool repeats(size_t at, size_t length, int shift) const {
    const Instruction &one = list[at], &other = list[at + length];
    return one.op == other.op && one.op != Op::Overlap &&
           one.work.microbatch >= 0 && one.work.stage == other.work.stage &&
           one.work.microbatch + shift == other.work.microbatch;
  }

  // The most trips of the list from `from` on.
  SteadyState findFor(int shift, size_t from) const {
    const size_t length = perMicrobatch * size_t(shift);
    SteadyState best;
    for (size_t at = from; at + length < list.size();) {
      size_t end = at; // of the instructions that repeat
      while (end + length < list.size() && repeats(end, length, shift))
        ++end;
      if (end - at >= length)
        if (SteadyState found = place(at, end + length, length, shift);
            found.trips > best.trips)
          best = found;
      at = end + 1;
    }
    return best;
  }

  // The trips of [from, to): where slots are free soonest, and there where the
  // fewest are in use at the ends of trips.
  SteadyState place(size_t from, size_t to, size_t length, int shift) const {
    const int trips = int((to - from) / length);
    SteadyState best;
    size_t fewest = 0;
    for (size_t begin = from; begin + length * size_t(trips) <= to; ++begin) {
      SteadyState here{begin, length, shift, trips};
      while (!reusesSlots(here))
        ++here.inFlight;
      if (here.inFlight > 1 && shift < kFewestInTrip)
        continue;
      const size_t live = size_t(std::ranges::count_if(lives, [&](auto &each) {
        return each.second.first < begin && begin <= each.second.last;
      }));
      if (!best.trips ||
          std::pair(here.inFlight, live) < std::pair(best.inFlight, fewest))
        best = here, fewest = live;
    }
    return best;
  }

  // True at the latest where no microbatch is that much later.
  bool reusesSlots(const SteadyState &state) const {
    return std::ranges::all_of(lives, [&](const auto &each) {
      const auto &[work, life] = each;
      if (life.last < state.begin || life.first >= state.end())
        return true;
      auto next = lives.find(
          {work.first, work.second + state.microbatches * state.inFlight});
      return next == lives.end() || life.last < next->second.first;
    });
  }

  const InstructionList &list;
  int microbatches = 0;
  size_t perMicrobatch = 0; ///< instructions
  size_t warm = 0;          ///< position after the first of every kind of work
  std::map<std::pair<int32_t, int32_t>, Life> lives; ///< by stage, microbatch
};

} // namespace

SteadyState findSteadyState(const InstructionList &list) {
  return PeriodSearch(list).find();
}

} // namespace tessera::pipeline
