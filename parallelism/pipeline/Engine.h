// Computes the time of every instruction of a schedule by executing all lists
// at once. The order of each list is fixed, so there is nothing to choose: an
// instruction starts when its rank is free and its operands have arrived.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {

class Engine {
public:
  /// The schedule is well formed and the costs fit it.
  Engine(const Schedule &schedule, const Costs &costs);

  /// Runs to the end of all lists. Errors: a deadlock, with the first blocked
  /// rank, and a send that meets the receive of another value.
  Status run();
  Simulation take() { return std::move(result); }

private:
  struct Rank {
    size_t next = 0;
    double free = 0;
    double collectives = 0; ///< when the engine for collectives is free
    double optimizer = 0;   ///< seconds of OPT_STEP
    double reduced = 0;     ///< when the last REDUCE_GRAD is done
    int reductions = 0;     ///< posted, end not known
    bool posted = false;    ///< the instruction at `next` waits for its peer
    bool queued = false;
  };
  /// One end of a transfer that waits for the other.
  struct Post {
    int32_t instruction;
    double time;
  };
  struct Channel {
    std::deque<Post> sends, receives;
    double free = 0;
  };
  /// The sends from a buffer: outputs (0) and gradients of inputs (1), one
  /// owner after the other.
  struct Slot {
    int sending[2] = {0, 0}; ///< sends of unknown end
    double free[2] = {0, 0}; ///< end of the others
  };
  /// A sum over the replicas of one stage: the ranks that have arrived.
  struct Reduction {
    std::vector<std::pair<int, Post>> posts;
  };

  bool step(int rank);
  bool compute(int rank, const Instruction &instruction);
  bool isReady(int rank, const Instruction &instruction, double &start) const;
  bool forwardReady(int rank, const Work &work, double &start) const;
  bool backwardReady(int rank, const Work &work, double &start) const;
  bool slotReady(int rank, const Work &work, bool backward,
                 double &start) const;
  void produce(int rank, const Work &work, bool forward, double end);
  void sendAtOnce(int from, const Work &work, bool forward, double end);

  /// The span in which `bytes` that are ready at `ready` are sent.
  Span occupy(Channel &channel, double ready, int from, int to,
              double bytes) const;
  bool transfer(int rank, const Instruction &instruction);
  void match(int from, int to, Channel &channel);
  void complete(int rank, int32_t instruction, bool async, Span span);
  bool unshard(int rank, const Instruction &instruction);
  bool reduce(int rank, const Instruction &instruction);
  bool optimizerStep(int rank);
  void advance(int rank, Span span);
  void wake(int rank);

  Status deadlock() const;
  void summarize();
  void measureMemory(int rank);
  size_t index(const Work &work) const;
  double bytes(const Instruction &transfer) const;

  const Schedule &schedule;
  const Costs &costs;
  const bool lowered;
  std::vector<Rank> ranks;
  std::vector<std::vector<Slot>> slots;
  std::vector<int> ready; ///< ranks to be stepped
  /// Ends of F, of B or I, and arrivals from other ranks; negative while
  /// unknown.
  std::vector<double> forwardEnd, inputEnd, forwardArrival, backwardArrival;
  std::vector<double>
      unsharded; ///< of each stage, when its parameters are gathered
  std::map<std::pair<int, int>, Channel> channels;
  std::map<std::pair<int, int>, Reduction>
      reductions;                ///< (stage of chain, k-th)
  std::vector<int> reductionsOf; ///< of each stage, posted so far
  Status failure;
  Simulation result;
};

} // namespace tessera::pipeline
