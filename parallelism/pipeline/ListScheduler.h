// The list scheduler of all generators: every rank, whenever it is free, takes
// the ready instruction that its policy prefers.
#pragma once
#include <deque>
#include <queue>
#include <utility>
#include <vector>

#include "parallelism/pipeline/Costs.h"
#include "parallelism/pipeline/Generate.h"
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// One run of the scheduler over a schedule with counts and placement but empty
/// lists.
class ListScheduler {
public:
  /// `patience`: a waiting rank runs a W if the wait is known to last at least
  /// this fraction of the W.
  ListScheduler(const Policy &policy, const Shape &shape, const Costs &costs,
                int memory, double patience, Schedule empty);

  /// An error if the bound on memory leaves every rank waiting.
  Status run();
  Schedule take() { return std::move(schedule); }

private:
  /// A microbatch at a stage that could run next. No stage: none.
  struct Candidate {
    int stage = -1, microbatch = -1;
    double ready = 0;
    bool exists() const { return stage >= 0; }
  };
  struct Rank {
    double free = 0;
    std::vector<int> stages;              ///< by position in their chain
    std::vector<int> forwards, backwards; ///< done, of each of them
    int64_t forwardsDone = 0, backwardsDone = 0;
    std::deque<Work> weights; ///< I is done, W is not
    int inFlight = 0, live = 0;
    int inFlightLimit = 0, liveLimit = 0;
    bool lastWasForward = false;
    std::vector<Move> moves; ///< the policy's fixed order
    size_t nextMove = 0;
  };

  void expandPhases(int rank);
  void decide(int rank, double now);
  void decideInOrder(int rank, double now);
  Candidate nextForward(const Rank &rank, double now) const;
  Candidate nextBackward(const Rank &rank, double now) const;
  /// The i-th forward (or backward) of a rank with Placement::Loop.
  Candidate inOrder(const Rank &rank, int64_t index, bool backward) const;
  /// The next one at the rank's stage of that position.
  Candidate nextAt(const Rank &rank, size_t place, bool backward) const;
  /// The best among one candidate for each stage.
  Candidate amongStages(const Rank &rank, bool backward, double now) const;
  bool fits(const Rank &rank, const Candidate &forward) const;
  bool isReady(const Candidate &each, double now) const;
  /// W, if `blocked` or if the wait until `next` is worth it.
  void fill(int rank, double now, double next, bool blocked);

  void issue(int rank, double now, Op op, const Candidate &work,
             const Candidate *backward = nullptr);
  void finishForward(int rank, const Candidate &work, double end);
  void finishBackward(int rank, Op op, const Candidate &work, double end);
  void arrive(std::vector<double> &ready, int from, int stage, int microbatch,
              double end, double bytes);
  size_t index(int stage, int microbatch) const;
  int firstMicrobatch(int stage) const;
  int microbatchesOf(int stage) const;

  const Policy &policy;
  const Shape shape;
  const Costs &costs;
  const double patience;
  Schedule schedule;
  std::vector<Rank> ranks;
  /// When the input, or the gradient of the output, of a microbatch at a stage
  /// is on the stage's rank; infinite while unknown.
  std::vector<double> forwardReady, backwardReady;
  /// Events closer than this are one: sums of times are not exact.
  double tolerance = 0;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
};

} // namespace tessera::pipeline
