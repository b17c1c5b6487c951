// Groups of completions, sampled, scored, and written to the journal before
// they are learned from. While the caller learns, threads of the sampler
// sample, and one of this class asks for rewards.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/rl/PromptFile.h"
#include "runtime/rl/Reward.h"
#include "runtime/rl/SampleJournal.h"
#include "runtime/rl/Sampler.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <thread>

namespace tessera::rl {

struct RolloutOptions {
  recipe::Recipe::Rollout settings;
  uint64_t seed = 0;
  uint64_t lastStep = UINT64_MAX; ///< nothing is sampled for steps after it
  std::vector<int32_t> stopTokens;
  /// The text that a reward is asked for.
  std::function<std::string(std::span<const int32_t>)> decode;
  std::function<void(std::string_view)> note; ///< one line for the user
};

/// A step here is what learns from one batch of groups, which may be several
/// steps of the learner (RolloutBatches.h).
class Rollouts {
public:
  /// Nothing is sampled before begin(). `reference` gives completions their
  /// reference log-probabilities; null: they have none. What is passed by
  /// reference must outlive this, which stops the sampler.
  Rollouts(Sampler &sampler, PagedModel *reference,
           const std::vector<Prompt> &prompts, Reward &reward,
           RolloutOptions options);
  ~Rollouts();
  Rollouts(const Rollouts &) = delete;
  Rollouts &operator=(const Rollouts &) = delete;

  /// The next group that take() gives is number `first`, for the step after
  /// `step`. The journal's groups are not sampled again. Weights are copied
  /// by updateWeights() before anything is sampled.
  void begin(uint64_t first, uint64_t step, SampleJournal journal,
             std::vector<Group> journaled);

  /// Gives the sampler the weights that `copy` copies (Sampler.h), and samples
  /// what they may begin.
  Status updateWeights(uint64_t step, const std::function<Status()> &copy);

  /// The next `rollout.prompts` groups, in order; waits for their rewards, or
  /// gives none if `stop` becomes true before.
  StatusOr<std::vector<Group>> take(const std::function<bool()> &stop);
  /// Writes what a value head gave for the groups that take() gave last.
  Status keep(const ValueEstimates &values);

  /// The mean reward of greedy completions of other prompts by the weights of
  /// the last update; nothing if `stop` becomes true before. Completions
  /// without a reward are left out.
  StatusOr<std::optional<double>> evaluate(const std::vector<Prompt> &others,
                                           const std::function<bool()> &stop);

private:
  struct Evaluation {
    std::size_t unfinished = 0;
    double sum = 0, count = 0;
  };
  struct OpenGroup {
    Group group;
    const Prompt *prompt = nullptr;
    std::shared_ptr<Evaluation> evaluation; ///< that it is of, or null
  };
  void submit(uint64_t number);
  void sample(const std::shared_ptr<OpenGroup> &open, float temperature);
  /// Called by threads of the sampler.
  void finished(const std::shared_ptr<OpenGroup> &open);
  void fail(Status status);
  void scoreGroups();
  Status score(const Prompt &prompt, Group &group);
  Status compare(Group &group);
  void count(const Group &group, Evaluation &evaluation);
  Status keep(Group group);

  Sampler &sampler;
  PagedModel *const reference; ///< of the scoring thread
  const std::vector<Prompt> &prompts;
  Reward &reward;
  const RolloutOptions options;
  std::mutex journalMutex;
  std::optional<SampleJournal> journal; ///< appended to under journalMutex

  uint64_t firstGroup = 0, firstStep = 0;
  uint64_t nextSubmitted = 0; ///< of the caller's thread

  std::mutex mutex; ///< guards the members below
  std::condition_variable changed;
  std::deque<std::shared_ptr<OpenGroup>> unscored;
  std::map<uint64_t, Group> ready;
  uint64_t nextTaken = 0;
  Status failure = Status::success();
  bool isOver = false;

  std::thread scorer; ///< last: started when all else is there
};

} // namespace tessera::rl
