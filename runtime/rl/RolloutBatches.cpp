#include "runtime/rl/RolloutBatches.h"
#include "runtime/data/TokenDataset.h"
#include "runtime/support/Hash.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::rl {

RolloutBatches::RolloutBatches(Sampler &sampler, PagedModel *reference,
                               const std::vector<Prompt> &prompts,
                               Reward &reward, RolloutOptions given,
                               RolloutRun run)
    : sampler(sampler), prompts(prompts), options(given), run(std::move(run)),
      rollouts(sampler, reference, prompts, reward, std::move(given)) {}

std::vector<std::string> RolloutBatches::describe() const {
  const recipe::Recipe::Rollout &settings = options.settings;
  return {fmt::format(
      "rollouts: {} prompts, {} of them {} with {} completions of up to "
      "{} tokens each{}",
      prompts.size(), settings.prompts,
      stepsOfBatch() > 1 ? fmt::format("for {} steps", stepsOfBatch())
                         : "a step",
      settings.group, settings.maxTokens,
      settings.staleness > 0
          ? fmt::format("; begun by weights up to {} steps old",
                        settings.staleness)
          : std::string())};
}

/// Of what is sampled for, and of what the reward program is given.
static uint64_t hashOfPrompts(const std::vector<Prompt> &prompts) {
  Hasher64 hasher;
  for (const Prompt &prompt : prompts) {
    const uint64_t sizes[] = {prompt.tokens.size(), prompt.line.size()};
    hasher.update(std::as_bytes(std::span(sizes)));
    hasher.update(std::as_bytes(std::span(prompt.tokens)));
    hasher.update(std::as_bytes(std::span(prompt.line)));
  }
  return hasher.digest();
}

/// Whether a group of the journal is one that this run would have sampled, as
/// far as its program can tell.
static Status checkJournaled(const Group &group, const ModelFacts &facts,
                             const recipe::Recipe::Rollout &settings) {
  const auto fail = [&](std::string_view what) {
    return Status::error("group {} of the journal {}; resume with the model "
                         "and the recipe that it was sampled with, or choose "
                         "another --out",
                         group.number, what);
  };
  const auto isToken = [&](int32_t token) {
    return token >= 0 && token < facts.vocabSize;
  };
  if (int64_t(group.samples.size()) != settings.group)
    return fail(fmt::format("has {} completions, and rollout.group is {}",
                            group.samples.size(), settings.group));
  for (const Sample &sample : group.samples) {
    if (int64_t(sample.tokens.size()) > settings.maxTokens)
      return fail(fmt::format("has a completion of {} tokens, and "
                              "rollout.max_tokens is {}",
                              sample.tokens.size(), settings.maxTokens));
    if (!std::ranges::all_of(sample.tokens, isToken) ||
        !std::ranges::all_of(group.promptTokens, isToken))
      return fail("has tokens that the vocabulary lacks");
    if (facts.documents.reference && sample.referenceLogProbs.empty())
      return fail("has no log-probabilities of a reference model");
  }
  return Status::success();
}

Status RolloutBatches::begin(TrainModel &model, const TrainPosition &position) {
  learner = &model;
  step = position.step;
  cursor = position.dataCursor;
  const ModelFacts &facts = model.facts();
  if (facts.documents.values &&
      facts.rows != facts.evalBatches * facts.evalRows)
    return Status::error("eval_step takes {} sequences and train_step {}; run: "
                         "{}",
                         facts.evalBatches * facts.evalRows, facts.rows,
                         facts.rebuildCommand);
  shape = {facts.microbatches * facts.rows, facts.sequence, run.documents};
  parts.clear();
  for (int64_t i = 0; i < options.settings.minibatches; ++i)
    parts.emplace_back(std::size_t(shape.rows * shape.sequence),
                       facts.documents);
  auto paired = pairWeights(model, sampler.weights(), run.adapter);
  if (!paired.ok())
    return paired.status();
  pairs = paired.take();
  if (run.reference) {
    auto base = pairWeights(model, *run.reference, std::nullopt);
    if (!base.ok())
      return base.status();
    TESSERA_RETURN_IF_ERROR(
        copyWeights(*base, /*onlyTrained=*/false, model, *run.reference));
  }
  std::vector<Group> journaled;
  auto journal = SampleJournal::open(
      run.out,
      {options.seed, hashOfPrompts(prompts), uint64_t(options.settings.epochs),
       uint64_t(options.settings.minibatches), run.reward},
      position.dataCursor, journaled, systemFiles(), &journaledValues);
  if (!journal.ok())
    return journal.status();
  if (const std::string before = journal->lastReward();
      !before.empty() && !isSameReward(before, run.reward)) {
    TESSERA_RETURN_IF_ERROR(journal->appendReward(run.reward));
    options.note(fmt::format("the reward has changed: {} before, {} now",
                             quote(before), quote(run.reward)));
  }
  for (const Group &group : journaled)
    TESSERA_RETURN_IF_ERROR(checkJournaled(group, facts, options.settings));
  if (!journaled.empty())
    options.note(fmt::format("{} groups of completions are in the journal and "
                             "not learned from yet",
                             journaled.size()));
  rollouts.begin(position.dataCursor, iteration(), journal.take(),
                 std::move(journaled));
  return updateWeights();
}

Status RolloutBatches::updateWeights() {
  const bool onlyTrained = run.adapter && std::exchange(hasBase, true);
  copiedBytes = 0;
  for (const WeightPair &pair : pairs)
    if (!onlyTrained || pair.isTrained)
      copiedBytes += pair.to->size;
  return rollouts.updateWeights(iteration(), [&] {
    return copyWeights(pairs, onlyTrained, *learner, sampler.weights());
  });
}

StatusOr<std::optional<TokenBatch>>
RolloutBatches::next(const std::function<bool()> &asked) {
  stop = asked;
  if (!hasBatch) {
    StatusOr<bool> made = makeBatch();
    if (!made.ok())
      return made.status();
    if (!*made)
      return std::optional<TokenBatch>();
    hasBatch = true;
  }
  return std::optional(parts[step % stepsOfBatch() % parts.size()].view());
}

/// False if it had to wait for completions and `stop` became true.
StatusOr<bool> RolloutBatches::makeBatch() {
  StatusOr<std::vector<Group>> groups = rollouts.take(stop);
  if (!groups.ok())
    return groups.status();
  if (groups->empty())
    return false;
  const std::size_t count = groups->size() / parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i)
    TESSERA_RETURN_IF_ERROR(
        pack(std::span(*groups).subspan(i * count, count), parts[i]));
  measure(*groups);
  if (!learner->facts().documents.values)
    return true;
  TESSERA_RETURN_IF_ERROR(step % stepsOfBatch() == 0 ? estimateValues()
                                                     : findValues());
  return true;
}

Status RolloutBatches::pack(std::span<const Group> groups,
                            TokenBuffers &part) const {
  std::vector<std::vector<double>> advantages;
  std::size_t scored = 0;
  for (const Group &group : groups) {
    advantages.push_back(
        advantagesOf(group, options.settings.baseline, options.settings.scale));
    for (const Sample &sample : group.samples)
      scored += sample.reward.has_value();
  }
  if (scored == 0)
    return Status::error("step {}: no completion has a reward{}", step + 1,
                         parts.size() > 1 ? " in one of rollout.minibatches"
                                          : "");
  return packSamples(groups, advantages, shape, part.out());
}

/// By the learner before it learns from the batch; kept for a run that is
/// resumed between two of the steps that do.
Status RolloutBatches::estimateValues() {
  const ModelFacts &facts = learner->facts();
  const auto tokens = std::size_t(facts.rows * facts.sequence);
  ValueEstimates kept{cursor, {}};
  for (TokenBuffers &part : parts) {
    for (std::size_t first = 0; first < part.tokens.size(); first += tokens) {
      auto values = learner->values(part.view().part(first, tokens));
      if (!values.ok())
        return values.status();
      std::ranges::copy(*values, part.values.begin() + std::ptrdiff_t(first));
    }
    for (std::size_t t = 0; t < part.values.size(); ++t)
      if (part.targets[t] != ignoredTarget)
        kept.tokens.push_back(part.values[t]);
  }
  if (!std::ranges::all_of(kept.tokens,
                           [](float x) { return std::isfinite(x); }))
    return Status::error("step {}: the value head gives no finite numbers; "
                         "resume with a lower optimizer.lr",
                         step + 1);
  return stepsOfBatch() > 1 ? rollouts.keep(kept) : Status::success();
}

/// Those that an earlier process estimated.
Status RolloutBatches::findValues() {
  const auto isLearned = [](int32_t target) { return target != ignoredTarget; };
  std::size_t learned = 0;
  for (const TokenBuffers &part : parts)
    learned += std::size_t(std::ranges::count_if(part.targets, isLearned));
  if (!journaledValues || journaledValues->tokens.size() != learned)
    return Status::error("the journal lacks the values of the {} tokens that "
                         "step {} learns from; resume with the recipe and the "
                         "program of the run, or choose another --out",
                         learned, step + 1);
  std::size_t next = 0;
  for (TokenBuffers &part : parts)
    for (std::size_t t = 0; t < part.values.size(); ++t)
      if (isLearned(part.targets[t]))
        part.values[t] = journaledValues->tokens[next++];
  return Status::success();
}

void RolloutBatches::measure(std::span<const Group> groups) {
  double rewards = 0, scored = 0, all = 0, tokens = 0, cut = 0, late = 0,
         deviations = 0, flat = 0;
  for (const Group &group : groups) {
    double sum = 0, squares = 0, count = 0;
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const Sample &sample : group.samples) {
      ++all;
      tokens += double(sample.tokens.size());
      cut += sample.isCut;
      for (uint32_t version : sample.versions)
        late += double(iteration()) - double(version);
      if (sample.reward) {
        ++count;
        sum += *sample.reward;
        squares += *sample.reward * *sample.reward;
        least = std::min(least, *sample.reward);
        most = std::max(most, *sample.reward);
      }
    }
    const double mean = count > 0 ? sum / count : 0;
    const double variance =
        count > 0 ? std::max(squares / count - mean * mean, 0.0) : 0;
    rewards += sum;
    scored += count;
    deviations += std::sqrt(variance);
    flat += count > 0 && least == most;
  }
  const auto number = double(groups.size());
  measured = {{"reward", rewards / scored},
              {"reward_deviation", deviations / number},
              {"groups_without_signal", flat / number},
              {"completion_tokens", tokens / all},
              {"cut", cut / all},
              {"dropped", all - scored},
              {"staleness", tokens > 0 ? late / tokens : 0}};
}

Status RolloutBatches::stepped(uint64_t made, MetricsRecord &record) {
  record.rollout = measured;
  // Of the weights that were handed over before this step.
  record.rollout.emplace_back("publish_time", sampler.publishSeconds());
  record.rollout.emplace_back("publish_bytes", double(copiedBytes));
  cursor += samples();
  step = made;
  if (step % stepsOfBatch() == 0) {
    hasBatch = false;
    TESSERA_RETURN_IF_ERROR(updateWeights());
  }
  const bool isDue =
      run.evalEvery > 0 &&
      (made % run.evalEvery == 0 || made == options.lastStep * stepsOfBatch());
  return isDue && !run.evalPrompts.empty() ? evaluate(record)
                                           : Status::success();
}

Status RolloutBatches::evaluate(MetricsRecord &record) {
  auto reward = rollouts.evaluate(run.evalPrompts, stop);
  if (!reward.ok())
    return reward.status();
  if (*reward)
    record.rollout.emplace_back(kHeldOutReward, **reward);
  return Status::success();
}

Status checkEpochs(const recipe::Recipe &recipe, uint64_t lastStep,
                   bool hasEvaluation) {
  const auto steps = uint64_t(recipe.rollout.steps());
  const std::string keys = fmt::format(
      "rollout.epochs{} = {}",
      recipe.rollout.minibatches > 1 ? " x rollout.minibatches" : "", steps);
  if (lastStep % steps != 0)
    return Status::error("the last step, {}, is not a multiple of {}; change "
                         "--steps or lr_schedule.total",
                         lastStep, keys);
  if (!hasEvaluation && !recipe.gates.require.empty())
    return Status::error("gates.require needs held-out prompts; name them with "
                         "--eval-prompts");
  // Between two such steps the sampler has older weights than the learner.
  if (hasEvaluation && uint64_t(recipe.eval.every) % steps != 0)
    return Status::error("eval.every = {} is not a multiple of {}; change one "
                         "of them",
                         recipe.eval.every, keys);
  return Status::success();
}

Status checkContext(const recipe::Recipe &recipe, int64_t longest,
                    int64_t context) {
  const int64_t tokens = longest + recipe.rollout.maxTokens;
  if (tokens <= context)
    return Status::success();
  return Status::error("a prompt of {} tokens and rollout.max_tokens = {} "
                       "exceed the context of {} tokens; lower "
                       "rollout.max_tokens, or raise inference.context",
                       longest, recipe.rollout.maxTokens, context);
}

Status checkBatch(const recipe::Recipe &recipe, int64_t longest) {
  const recipe::Recipe::Rollout &rollout = recipe.rollout;
  const int64_t tokens = longest + rollout.maxTokens;
  const BatchShape shape{recipe.batch.micro * recipe.batch.accumulate,
                         recipe.batch.sequence, recipe.policy.documents};
  const int64_t samples = rollout.prompts * rollout.group / rollout.minibatches;
  if (tokens - 1 > shape.sequence)
    return Status::error("a prompt of {} tokens and rollout.max_tokens = {} do "
                         "not fit batch.sequence = {}",
                         longest, rollout.maxTokens, shape.sequence);
  if (!alwaysFits(shape, samples, tokens - 1))
    return Status::error(
        "rollout.prompts x rollout.group{} = {} completions of up to {} tokens "
        "with their prompts may not fit a step of {} sequences of {} tokens, "
        "each with {} documents at most; {} sequences do (batch.micro x "
        "batch.accumulate), or lower rollout.max_tokens",
        rollout.minibatches > 1 ? " / rollout.minibatches" : "", samples,
        tokens - 1, shape.rows, shape.sequence, shape.documents,
        (samples + shape.inSequence(tokens - 1) - 1) /
            shape.inSequence(tokens - 1));
  return Status::success();
}

} // namespace tessera::rl
