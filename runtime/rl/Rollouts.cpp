#include "runtime/rl/Rollouts.h"
#include "runtime/infer/TokenScores.h"
#include "runtime/support/SplitMix64.h"

namespace tessera::rl {
namespace {

/// How often a thread that waits asks whether to stop.
constexpr auto kSlice = std::chrono::milliseconds(100);

uint64_t seedOf(uint64_t seed, uint64_t group, uint64_t sample) {
  return mix64(mix64(seed + kGoldenGamma * (group + 1)) +
               kGoldenGamma * (sample + 1));
}

} // namespace

Rollouts::Rollouts(Sampler &sampler, PagedModel *reference,
                   const std::vector<Prompt> &prompts, Reward &reward,
                   RolloutOptions given)
    : sampler(sampler), reference(reference), prompts(prompts), reward(reward),
      options(std::move(given)) {}

Rollouts::~Rollouts() {
  {
    std::lock_guard lock(mutex);
    isOver = true;
  }
  changed.notify_all();
  reward.interrupt();
  sampler.stop(); // it calls this
  if (scorer.joinable())
    scorer.join();
}

void Rollouts::begin(uint64_t first, uint64_t step, SampleJournal opened,
                     std::vector<Group> journaled) {
  firstGroup = nextSubmitted = nextTaken = first;
  firstStep = step;
  journal.emplace(std::move(opened));
  for (Group &group : journaled) {
    const uint64_t number = group.number;
    ready.insert_or_assign(number, std::move(group));
  }
  scorer = std::thread([this] { scoreGroups(); });
}

Status Rollouts::updateWeights(uint64_t step,
                               const std::function<Status()> &copy) {
  TESSERA_RETURN_IF_ERROR(sampler.updateWeights(uint32_t(step), copy));
  const uint64_t reached =
      std::min(step + uint64_t(options.settings.staleness) + 1,
               std::max(options.lastStep, firstStep));
  const uint64_t end =
      firstGroup + (reached - firstStep) * uint64_t(options.settings.prompts);
  for (; nextSubmitted < end; ++nextSubmitted) {
    {
      std::lock_guard lock(mutex);
      if (ready.contains(nextSubmitted)) // journaled by an earlier process
        continue;
    }
    submit(nextSubmitted);
  }
  return Status::success();
}

void Rollouts::submit(uint64_t number) {
  auto open = std::make_shared<OpenGroup>();
  const uint64_t prompt = promptOfGroup(options.seed, number, prompts.size());
  open->prompt = &prompts[prompt];
  open->group.number = number;
  open->group.prompt = prompt;
  open->group.samples.resize(std::size_t(options.settings.group));
  // The log-probabilities that are learned from are those of the model, so
  // nothing else may decide the choice.
  sample(open, /*temperature=*/1);
}

void Rollouts::sample(const std::shared_ptr<OpenGroup> &open,
                      float temperature) {
  open->group.promptTokens = open->prompt->tokens;
  SampleRequest request;
  request.prompt = open->prompt->tokens;
  for (std::size_t i = 0; i < open->group.samples.size(); ++i)
    request.seeds.push_back(seedOf(options.seed, open->group.number, i));
  request.temperature = temperature;
  request.maxTokens = options.settings.maxTokens;
  request.stopTokens = options.stopTokens;
  sampler.submit(std::move(request),
                 [this, open](StatusOr<std::vector<Sample>> samples) {
                   if (!samples.ok())
                     return fail(samples.status());
                   open->group.samples = samples.take();
                   finished(open);
                 });
}

void Rollouts::finished(const std::shared_ptr<OpenGroup> &open) {
  {
    std::lock_guard lock(mutex);
    unscored.push_back(open);
  }
  changed.notify_all();
}

void Rollouts::fail(Status status) {
  {
    std::lock_guard lock(mutex);
    if (failure.ok())
      failure = std::move(status);
  }
  changed.notify_all();
}

//===--- rewards ----------------------------------------------------------===//

void Rollouts::scoreGroups() {
  for (;;) {
    std::shared_ptr<OpenGroup> open;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return isOver || !unscored.empty(); });
      if (isOver)
        return;
      open = std::move(unscored.front());
      unscored.pop_front();
    }
    Status status = score(*open->prompt, open->group);
    if (status.ok() && open->evaluation) {
      count(open->group, *open->evaluation);
      continue;
    }
    if (status.ok() && reference)
      status = compare(open->group);
    if (status.ok())
      status = keep(std::move(open->group));
    if (!status.ok())
      return fail(std::move(status));
  }
}

void Rollouts::count(const Group &group, Evaluation &evaluation) {
  {
    std::lock_guard lock(mutex);
    --evaluation.unfinished;
    for (const Sample &sample : group.samples)
      if (sample.reward) {
        evaluation.sum += *sample.reward;
        ++evaluation.count;
      }
  }
  changed.notify_all();
}

StatusOr<std::optional<double>>
Rollouts::evaluate(const std::vector<Prompt> &others,
                   const std::function<bool()> &stop) {
  auto evaluation = std::make_shared<Evaluation>();
  evaluation->unfinished = others.size();
  for (const Prompt &prompt : others) {
    auto open = std::make_shared<OpenGroup>();
    open->prompt = &prompt;
    open->evaluation = evaluation;
    open->group.samples.resize(1);
    sample(open, /*temperature=*/0);
  }
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kSlice, [&] {
    return !failure.ok() || evaluation->unfinished == 0;
  }))
    if (stop())
      return std::optional<double>();
  if (!failure.ok())
    return failure;
  if (evaluation->count == 0)
    return Status::error("no completion of a held-out prompt has a reward");
  return std::optional(evaluation->sum / evaluation->count);
}

Status Rollouts::score(const Prompt &prompt, Group &group) {
  for (Sample &sample : group.samples) {
    {
      std::lock_guard lock(mutex);
      if (isOver)
        return Status::error("the run ends");
    }
    const std::string text = options.decode(sample.tokens);
    StatusOr<double> scored = reward.score({prompt.line, text, sample.isCut});
    if (scored.ok()) {
      sample.reward = *scored;
      continue;
    }
    const std::string line =
        fmt::format("{}: the reward: {}", prompt.where, scored.message());
    if (options.settings.onRewardFailure == recipe::RewardFailure::Stop)
      return Status::error("{}; rollout.on_reward_failure: drop goes on "
                           "without such completions",
                           line);
    options.note(line + "; the completion is not learned from");
  }
  return Status::success();
}

/// Adds the reference model's log-probabilities.
Status Rollouts::compare(Group &group) {
  std::vector<std::vector<int32_t>> sequences;
  for (Sample &sample : group.samples) {
    auto &sequence = sequences.emplace_back(group.promptTokens);
    sequence.insert(sequence.end(), sample.tokens.begin(), sample.tokens.end());
    sample.referenceLogProbs.resize(sample.tokens.size());
  }
  const std::vector<std::span<const int32_t>> views(sequences.begin(),
                                                    sequences.end());
  const auto prompt = int64_t(group.promptTokens.size());
  const std::vector<int64_t> prompts(views.size(), prompt);
  return scoreTokens(
      *reference, views,
      [&](std::size_t i, int64_t at, double logProb) {
        if (at >= prompt)
          group.samples[i].referenceLogProbs[size_t(at - prompt)] =
              float(logProb);
      },
      prompts);
}

Status Rollouts::keep(const ValueEstimates &values) {
  std::lock_guard lock(journalMutex);
  return journal->append(values);
}

Status Rollouts::keep(Group group) {
  {
    std::lock_guard lock(journalMutex);
    TESSERA_RETURN_IF_ERROR(journal->append(group));
  }
  {
    std::lock_guard lock(mutex);
    const uint64_t number = group.number;
    ready.insert_or_assign(number, std::move(group));
  }
  changed.notify_all();
  return Status::success();
}

StatusOr<std::vector<Group>> Rollouts::take(const std::function<bool()> &stop) {
  const auto count = uint64_t(options.settings.prompts);
  std::unique_lock lock(mutex);
  // All of them, so that stopping leaves none out.
  for (uint64_t i = nextTaken; i < nextTaken + count; ++i)
    while (!changed.wait_for(
        lock, kSlice, [&] { return !failure.ok() || ready.contains(i); }))
      if (stop())
        return std::vector<Group>();
  if (!failure.ok())
    return failure;
  std::vector<Group> groups;
  for (uint64_t i = 0; i < count; ++i, ++nextTaken)
    groups.push_back(std::move(ready.extract(nextTaken).mapped()));
  return groups;
}

} // namespace tessera::rl
