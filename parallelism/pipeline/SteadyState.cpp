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

/// Calls `visit` with what an instruction does: F and B for an OVERLAP, I and W
/// for B.
template <typename Visit>
void forEachPart(const Instruction &each, Visit visit) {
  auto back = [&](const Work &work) {
    visit(Op::BackwardInput, work);
    visit(Op::BackwardWeight, work);
  };
  if (each.op == Op::Overlap) {
    visit(Op::Forward, each.work);
    back(each.backward);
  } else if (each.op == Op::Backward) {
    back(each.work);
  } else {
    visit(each.op, each.work);
  }
}

class PeriodSearch {
public:
  explicit PeriodSearch(const InstructionList &list) : list(list) {
    std::set<std::pair<Op, int32_t>> kinds;
    std::map<int32_t, size_t> counts; // of instructions, by microbatch
    for (size_t k = 0; k < list.size(); ++k) {
      if (list[k].work.microbatch < 0)
        continue;
      forEachPart(list[k], [&](Op op, const Work &work) {
        if (kinds.emplace(op, work.stage).second)
          warm = k + 1;
        lives.try_emplace({work.stage, work.microbatch}, Life{k, k})
            .first->second.last = k;
      });
      microbatches = std::max(microbatches, list[k].work.microbatch + 1);
      ++counts[list[k].work.microbatch];
    }
    // An OVERLAP counts once, for its F. So microbatches whose B are all
    // overlapped, those of the steady state, have the fewest.
    for (const auto &[microbatch, count] : counts)
      perMicrobatch = perMicrobatch ? std::min(perMicrobatch, count) : count;
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
    auto isLater = [&](const Work &a, const Work &b) {
      return a.stage == b.stage && a.microbatch + shift == b.microbatch;
    };
    return one.op == other.op && one.work.microbatch >= 0 &&
           isLater(one.work, other.work) &&
           (one.op != Op::Overlap || isLater(one.backward, other.backward));
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
