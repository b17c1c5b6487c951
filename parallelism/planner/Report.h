// Reports of a plan: text for people, JSON for programs.
#pragma once
#include <optional>
#include <string>

#include "parallelism/planner/Reliability.h"
#include "parallelism/planner/Search.h"

namespace tessera::planner {

/// The input of planning.
struct Question {
  std::string modelName;
  ModelShape model;
  Cluster cluster;
  Workload workload;
  double tokens = 0;        ///< of the whole training; 0: not given
  Scope scope = Scope::Any; ///< of the plans that are considered
};

/// The cost of a training under a plan.
struct Economics {
  double days = 0; ///< checkpoints and failures included, if known
  double gpuHours = 0;
  double price = 0; ///< 0 if the cluster has no price
  std::optional<CheckpointPolicy> checkpoints;
};
Economics economics(const Question &question, const StepCost &cost);

/// A plan on more GPUs, with the same batch or a larger one.
struct ScaleOut {
  int64_t gpus = 0;
  int64_t globalBatch = 0;
  std::optional<Candidate> same; ///< the chosen plan with more data ranks
  std::optional<Candidate> best; ///< of a new sweep
};

/// What compiling the best plans of a search came to.
struct Trials {
  int64_t compiled = 0;  ///< programs, or sets of shallow ones
  int64_t unfit = 0;     ///< plans whose programs do not fit
  int64_t alike = 0;     ///< more that do not by comparison with these
  int64_t refused = 0;   ///< plans that the compiler refused
  int64_t estimated = 0; ///< plans for which there was no time
  std::string refusal;   ///< the first refused one and why
  std::optional<Candidate> smallest; ///< of those that do not fit
  std::vector<Candidate> programs;   ///< all that were compiled, in order
};

struct Answer {
  Candidate chosen;
  bool given = false;                 ///< by --fix, not found
  bool fits = true;                   ///< always, unless the plan was given
  Trials trials;                      ///< all 0: nothing was compiled
  std::optional<SearchResult> search; ///< absent for a plan that was given
  std::vector<ScaleOut> scaleOut;
};

/// The cost of the same model on `gpus` GPUs, with its batch and with twice
/// that. Empty if the cluster has as many already or cannot grow.
std::vector<ScaleOut> scaleOut(const Question &question,
                               const Candidate &chosen, int64_t gpus);

/// The chosen plan: memory, time, money, checkpoints, more GPUs.
std::string printAnswer(const Question &question, const Answer &answer);
/// A table of the best plans.
std::string printComparison(const SearchResult &result);
/// How many of the best plans were compiled, and what ruled some out; empty if
/// none was.
std::string printTrials(const Question &question, const Trials &trials);
/// Why the chosen degrees, and what ruled out others.
std::string printReasons(const Question &question, const SearchResult &result);
/// All of the above. Keys are in docs/planning.md; units are bytes and seconds.
std::string answerJson(const Question &question, const Answer &answer);

} // namespace tessera::planner
