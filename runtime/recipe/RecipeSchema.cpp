// Which keys there are, what each may hold, and how it is read and printed.
#include "runtime/recipe/RecipeSchema.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "runtime/recipe/MetricGate.h"
#include "runtime/recipe/RecipeLimits.h"
#include "runtime/support/Text.h"

namespace tessera::recipe {
namespace {

// A step program counts its steps in fp32 (runtime/train/Hyper.h), which is
// exact so far.
constexpr int64_t maxSteps = int64_t(1) << 24;

// In the order of the enumerators.
constexpr std::array<std::string_view, 8> tasks = {
    "sft", "dpo", "orpo", "simpo", "policy", "kto", "reward", "distill"};
constexpr std::array<std::string_view, 3> preferenceLosses = {"sigmoid",
                                                              "hinge", "ipo"};
constexpr std::array<std::string_view, 2> references = {"stored", "none"};
constexpr std::array<std::string_view, 2> ratios = {"token", "sequence"};
constexpr std::array<std::string_view, 3> aggregates = {"token", "document",
                                                        "constant"};
constexpr std::array<std::string_view, 3> estimators = {"k1", "k2", "k3"};
constexpr std::array<std::string_view, 2> advantages = {"rollout", "gae"};
constexpr std::array<std::string_view, 2> whitenings = {"none", "step"};
constexpr std::array<std::string_view, 3> baselines = {"group", "leave_one_out",
                                                       "none"};
constexpr std::array<std::string_view, 2> rewardScales = {"group", "none"};
constexpr std::array<std::string_view, 2> rewardFailures = {"stop", "drop"};
constexpr std::array<std::string_view, 2> divergences = {"forward", "reverse"};
constexpr std::array<std::string_view, 2> optimizers = {"adamw", "sgd"};
constexpr std::array<std::string_view, 3> schedules = {"cosine", "linear",
                                                       "constant"};
constexpr std::array<std::string_view, 3> precisions = {"fp32", "bf16", "fp64"};
constexpr std::array<std::string_view, 3> recomputes = {"none", "full",
                                                        "selective"};
constexpr std::array<std::string_view, 3> scopes = {"sequence", "microbatch",
                                                    "global"};
constexpr std::array<std::string_view, 2> drops = {"position", "probability"};
constexpr std::array<std::string_view, 3> dispatches = {"auto", "gather",
                                                        "exchange"};
constexpr std::array<std::string_view, 3> misses = {"stop", "roll_back",
                                                    "note"};
constexpr std::array<std::string_view, 2> joinedOrSeparate = {"joined",
                                                              "separate"};
constexpr std::array<std::string_view, 2> promptMasks = {"causal",
                                                         "bidirectional"};
constexpr std::array<std::string_view, 3> adapterKinds = {"none", "lora",
                                                          "dora"};
constexpr std::array<std::string_view, 7> adapterBases = {
    "auto", "fp32", "bf16", "nf4", "int8", "int4", "fp8"};
constexpr std::array<std::string_view, 2> adapterScalings = {"rank", "root"};
constexpr std::array<std::string_view, 4> quants = {"none", "int8", "int4",
                                                    "fp8"};
constexpr std::array<std::string_view, 2> kvKinds = {"auto", "int8"};
constexpr std::array<std::string_view, 2> zeroPoints = {"none", "groups"};
constexpr std::array<std::string_view, 2> layouts = {"rows", "packed"};
constexpr std::array<std::string_view, 2> activations = {"auto", "int8"};
constexpr std::array<std::string_view, 3> numerics = {"auto", "inference",
                                                      "training"};
constexpr std::array<std::string_view, 5> poolings = {"model", "mean", "cls",
                                                      "max", "mean_sqrt"};
constexpr std::array<std::string_view, 3> normalizes = {"model", "none", "l2"};

template <typename Enum>
Choice choice(Enum &value, std::span<const std::string_view> words) {
  return {words, &value,
          [](const void *at) { return int(*static_cast<const Enum *>(at)); },
          [](void *at, int to) { *static_cast<Enum *>(at) = Enum(to); }};
}

/// A plain scalar is a number or a word; a quoted one is always a string, and
/// quotes around a number are nearly always a slip.
bool isQuoted(const YAML::Node &node) {
  return node.IsScalar() && node.Tag() == "!";
}

template <typename Number>
Status readNumber(const YAML::Node &node, const char *what, Number least,
                  Number most, bool below, Number &value) {
  if (!node.IsScalar() || node.Scalar().empty())
    return Status::error("must be {}, got {}", what, shown(node));
  if (isQuoted(node))
    return Status::error("must be {}, got a string; remove the quotes around "
                         "{}",
                         what, quote(node.Scalar()));
  const std::string &text = node.Scalar();
  Number read{};
  auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), read);
  bool whole = end == text.data() + text.size();
  if (whole && failure == std::errc() && read >= least && read <= most &&
      !(below && float(read) >= float(most))) { // a step program holds fp32
    value = read + Number(0);                   // -0.0 becomes 0.0
    return Status::success();
  }
  // from_chars also takes "nan" and "inf"; they fail the range above.
  bool number = whole && failure != std::errc::invalid_argument;
  if (!number)
    return Status::error("must be {}, got {}", what, shown(node));
  return Status::error("must be at least {} and {} {}, got {}", least,
                       below ? "less than" : "at most", most, text);
}

Status store(const YAML::Node &node, const Choice &slot) {
  if (node.IsScalar())
    for (size_t i = 0; i < slot.words.size(); ++i)
      if (slot.words[i] == node.Scalar()) {
        slot.set(slot.value, int(i));
        return Status::success();
      }
  return Status::error("must be {}, got {}{}", choices(slot.words), shown(node),
                       node.IsScalar() ? suggestion(node.Scalar(), slot.words)
                                       : "");
}
Status store(const YAML::Node &node, const Integer &slot) {
  return readNumber(node, "an integer", slot.least, slot.most, false,
                    *slot.value);
}
Status store(const YAML::Node &node, const Real &slot) {
  return readNumber(node, "a number", slot.least, slot.most, slot.below,
                    *slot.value);
}
Status store(const YAML::Node &node, const MaybeReal &slot) {
  if (node.IsNull()) {
    slot.value->reset();
    return Status::success();
  }
  double value = 0;
  TESSERA_RETURN_IF_ERROR(readNumber(node, "a number or null", slot.least,
                                     slot.most, slot.below, value));
  *slot.value = value;
  return Status::success();
}
Status store(const YAML::Node &node, const Pair &slot) {
  if (!node.IsSequence() || node.size() != 2)
    return Status::error("must be two numbers [a, b], got {}", shown(node));
  std::array<double, 2> values{};
  for (size_t i = 0; i < 2; ++i)
    TESSERA_RETURN_IF_ERROR(readNumber(node[i], "two numbers", slot.least,
                                       slot.most, slot.below, values[i]));
  *slot.value = values;
  return Status::success();
}
Status store(const YAML::Node &node, const Path &slot) {
  if (node.IsNull()) {
    slot.value->reset();
    return Status::success();
  }
  if (!node.IsScalar() || node.Scalar().empty())
    return Status::error("must be a directory or null, got {}", shown(node));
  // A recipe is stored as text and printed again; such names have no text.
  if (node.Scalar().find('\0') != std::string::npos || !isUtf8(node.Scalar()))
    return Status::error("must be a name in UTF-8 without NUL bytes");
  *slot.value = node.Scalar();
  return Status::success();
}

/// Whether a scalar is a word of the slot.
static bool isWord(const YAML::Node &node, const Words &slot) {
  if (!node.IsScalar())
    return false;
  std::string_view word = node.Scalar();
  if (slot.hasNumbers)
    word = rankEntry(word).first;
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.';
  });
}

Status store(const YAML::Node &node, const Words &slot) {
  constexpr size_t most = 64;
  const bool isList = node.IsSequence();
  const std::string_view form = slot.hasNumbers ? "down_proj=8" : "a, b";
  if (!(isList || node.IsScalar()) ||
      (isList && node.size() == 0 && !slot.orNone))
    return Status::error("must be one or more words [{}], got {}", form,
                         shown(node));
  std::vector<std::string> words;
  for (size_t i = 0; i < (isList ? node.size() : 1); ++i) {
    const YAML::Node each = isList ? node[i] : node;
    if (!isWord(each, slot) || words.size() == most)
      return slot.hasNumbers
                 ? Status::error("must be at most {} names with a number of at "
                                 "least 1, such as down_proj=8, got {}",
                                 most, shown(each))
                 : Status::error("must be at most {} words of a-z, A-Z, 0-9, "
                                 "'_' and '.', in brackets if they are "
                                 "several: [a, b], got {}",
                                 most, shown(each));
    words.push_back(each.Scalar());
  }
  *slot.value = std::move(words);
  return Status::success();
}

Status store(const YAML::Node &node, const Gates &slot) {
  constexpr size_t most = 64;
  const bool isList = node.IsSequence();
  if (!(isList || node.IsScalar()) || (isList && node.size() > most))
    return Status::error("must be a list of at most {} gates such as "
                         "eval_loss <= 3.2, got {}",
                         most, shown(node));
  std::vector<std::string> lines;
  for (size_t i = 0; i < (isList ? node.size() : 1); ++i) {
    const YAML::Node each = isList ? node[i] : node;
    if (!each.IsScalar())
      return Status::error("must be a list of gates such as eval_loss <= 3.2, "
                           "got {}",
                           shown(each));
    auto gate = parseMetricGate(each.Scalar());
    if (!gate.ok())
      return gate.status();
    lines.push_back(fmt::format("{} {} {}", gate->metric,
                                gate->isLeast ? ">=" : "<=", gate->bound));
  }
  *slot.value = std::move(lines);
  return Status::success();
}

} // namespace

std::string_view name(Task task) { return tasks[size_t(task)]; }
bool hasPairs(Task task) {
  return task == Task::Dpo || task == Task::Orpo || task == Task::Simpo ||
         task == Task::Reward;
}
std::string_view name(OptimizerKind kind) { return optimizers[size_t(kind)]; }
std::string_view name(ScheduleKind kind) { return schedules[size_t(kind)]; }
std::string_view name(Precision precision) {
  return precisions[size_t(precision)];
}
std::string_view name(Recompute recompute) {
  return recomputes[size_t(recompute)];
}

std::string_view name(BalanceScope scope) { return scopes[size_t(scope)]; }
std::string_view name(DropPolicy policy) { return drops[size_t(policy)]; }
std::string_view name(AdapterBase base) { return adapterBases[size_t(base)]; }
std::string_view name(Quant quant) { return quants[size_t(quant)]; }
std::string_view name(KvKind kind) { return kvKinds[size_t(kind)]; }
std::string_view name(ZeroPoints zeros) { return zeroPoints[size_t(zeros)]; }
std::string_view name(WeightLayout layout) { return layouts[size_t(layout)]; }
std::string_view name(Activations kind) { return activations[size_t(kind)]; }
std::string_view name(Numerics kind) { return numerics[size_t(kind)]; }
std::string_view name(Prompts prompts) { return promptMasks[size_t(prompts)]; }
std::string_view name(RowDispatch dispatch) {
  return dispatches[size_t(dispatch)];
}
std::string_view name(Pooling pooling) { return poolings[size_t(pooling)]; }
std::string_view name(Normalize normalize) {
  return normalizes[size_t(normalize)];
}

std::vector<Field> schema(Recipe &r) {
  constexpr double most = 1e6;
  return {
      {"task", choice(r.task, tasks)},
      {"preference.loss", choice(r.preference.loss, preferenceLosses)},
      {"preference.beta", Real{&r.preference.beta, 1e-6, most}},
      {"preference.margin", Real{&r.preference.margin, 0, most}},
      {"preference.label_smoothing",
       Real{&r.preference.labelSmoothing, 0, 0.5, true}},
      {"preference.reference", choice(r.preference.reference, references)},
      {"preference.center", Real{&r.preference.center, 0, most}},
      {"preference.pairs", Integer{&r.preference.pairs, 1, 1 << 12}},
      {"policy.ratio", choice(r.policy.ratio, ratios)},
      {"policy.clip_low", Real{&r.policy.clipLow, 0, 1, true}},
      {"policy.clip_high", Real{&r.policy.clipHigh, 0, most}},
      {"policy.aggregate", choice(r.policy.aggregate, aggregates)},
      {"policy.length", Integer{&r.policy.length, 0, r.batch.mostLength}},
      {"policy.kl.beta", Real{&r.policy.kl.beta, 0, most}},
      {"policy.kl.estimator", choice(r.policy.kl.estimator, estimators)},
      {"policy.documents", Integer{&r.policy.documents, 1, 1 << 12}},
      {"policy.advantages", choice(r.policy.advantages, advantages)},
      {"policy.gae.gamma", Real{&r.policy.gae.gamma, 0, 1}},
      {"policy.gae.lambda", Real{&r.policy.gae.lambda, 0, 1}},
      {"policy.gae.whiten", choice(r.policy.gae.whiten, whitenings)},
      {"policy.value.weight", Real{&r.policy.value.weight, 0, most}},
      {"policy.value.clip", Real{&r.policy.value.clip, 0, most}},
      {"kto.beta", Real{&r.kto.beta, 1e-6, most}},
      {"kto.desirable_weight", Real{&r.kto.desirableWeight, 0, most}},
      {"kto.undesirable_weight", Real{&r.kto.undesirableWeight, 0, most}},
      {"kto.documents", Integer{&r.kto.documents, 1, 1 << 12}},
      {"distill.divergence", choice(r.distill.divergence, divergences)},
      {"distill.temperature", Real{&r.distill.temperature, 0.01, 100}},
      {"distill.weight", Real{&r.distill.weight, 0, 1}},
      {"distill.top", Integer{&r.distill.top, 1, kMostTeacherTokens}},
      {"rollout.prompts", Integer{&r.rollout.prompts, 1, 1 << 16}},
      {"rollout.group", Integer{&r.rollout.group, 1, 1 << 12}},
      {"rollout.max_tokens", Integer{&r.rollout.maxTokens, 1, 1 << 24}},
      {"rollout.staleness", Integer{&r.rollout.staleness, 0, 1 << 10}},
      {"rollout.baseline", choice(r.rollout.baseline, baselines)},
      {"rollout.scale", choice(r.rollout.scale, rewardScales)},
      {"rollout.reward_timeout", Integer{&r.rollout.rewardTimeout, 1, 1 << 20}},
      {"rollout.on_reward_failure",
       choice(r.rollout.onRewardFailure, rewardFailures)},
      {"rollout.epochs", Integer{&r.rollout.epochs, 1, 1 << 10}},
      {"rollout.minibatches", Integer{&r.rollout.minibatches, 1, 1 << 10}},
      {"optimizer.name", choice(r.optimizer.name, optimizers)},
      {"optimizer.lr", Real{&r.optimizer.lr, 0, most}},
      {"optimizer.betas", Pair{&r.optimizer.betas, 0, 1, true}},
      {"optimizer.eps", Real{&r.optimizer.eps, 1e-30, 1}},
      {"optimizer.weight_decay", Real{&r.optimizer.weightDecay, 0, most}},
      {"optimizer.momentum", Real{&r.optimizer.momentum, 0, 1, true}},
      {"optimizer.clip", Real{&r.optimizer.clip, 0, most}},
      {"optimizer.update", choice(r.optimizer.update, joinedOrSeparate)},
      {"lr_schedule.name", choice(r.schedule.name, schedules)},
      {"lr_schedule.warmup", Integer{&r.schedule.warmup, 0, maxSteps}},
      {"lr_schedule.total", Integer{&r.schedule.total, 1, maxSteps}},
      {"lr_schedule.min_ratio", Real{&r.schedule.minRatio, 0, 1}},
      {"batch.micro", Integer{&r.batch.micro, 1, r.batch.mostSequences}},
      {"batch.accumulate",
       Integer{&r.batch.accumulate, 1, r.batch.mostSequences}},
      {"batch.sequence", Integer{&r.batch.sequence, 1, r.batch.mostLength}},
      {"precision.compute", choice(r.compute, precisions)},
      {"recompute", choice(r.recompute, recomputes)},
      {"dropout.rate", MaybeReal{&r.dropout.rate, 0, 1, true}},
      {"attention.prompts", choice(r.attention.prompts, promptMasks)},
      {"moe.balance", choice(r.moe.balance, scopes)},
      {"moe.balance_weight", Real{&r.moe.balanceWeight, 0, most}},
      {"moe.balance_warmup", Integer{&r.moe.balanceWarmup, 0, maxSteps}},
      {"moe.z_weight", Real{&r.moe.zWeight, 0, most}},
      {"moe.noise", Real{&r.moe.noise, 0, most}},
      {"moe.bias_rate", Real{&r.moe.biasRate, 0, most}},
      {"moe.capacity", Real{&r.moe.capacity, 0, most}},
      {"moe.drop", choice(r.moe.drop, drops)},
      {"moe.dispatch", choice(r.moe.dispatch, dispatches)},
      {"moe.buffer", Real{&r.moe.buffer, 0, most}},
      {"adapter.kind", choice(r.adapter.kind, adapterKinds)},
      {"adapter.rank", Integer{&r.adapter.rank, 1, Recipe::Adapter::kMostRank}},
      {"adapter.ranks", Words{&r.adapter.ranks, true, true}},
      {"adapter.alpha", Real{&r.adapter.alpha, 1e-6, most}},
      {"adapter.scaling", choice(r.adapter.scaling, adapterScalings)},
      {"adapter.dropout", Real{&r.adapter.dropout, 0, 1, true}},
      {"adapter.base", choice(r.adapter.base, adapterBases)},
      {"adapter.target", Words{&r.adapter.target}},
      {"adapter.modules_to_save", Words{&r.adapter.modulesToSave, true}},
      {"adapter.slots", Integer{&r.adapter.slots, 0, 1 << 12}},
      {"inference.context", Integer{&r.inference.context, 1, 1 << 24}},
      {"inference.batch", Integer{&r.inference.batch, 1, 1 << 12}},
      {"inference.chunk", Integer{&r.inference.chunk, 2, 1 << 16}},
      {"inference.page", Integer{&r.inference.page, 1, 1 << 12}},
      {"inference.pages", Integer{&r.inference.pages, 0, 1 << 26}},
      {"inference.kv", choice(r.inference.kv, kvKinds)},
      {"inference.quant", choice(r.inference.quant, quants)},
      {"inference.group", Integer{&r.inference.group, 32, 128}},
      {"inference.zeros", choice(r.inference.zeros, zeroPoints)},
      {"inference.layout", choice(r.inference.layout, layouts)},
      {"inference.activations", choice(r.inference.activations, activations)},
      {"inference.numerics", choice(r.inference.numerics, numerics)},
      {"inference.pooling", choice(r.inference.pooling, poolings)},
      {"inference.normalize", choice(r.inference.normalize, normalizes)},
      {"seed", Integer{&r.seed, 0, INT64_MAX}},
      {"data.train", Path{&r.data.train}},
      {"data.eval", Path{&r.data.eval}},
      {"data.documents", choice(r.data.documents, joinedOrSeparate)},
      {"eval.every", Integer{&r.eval.every, 0, maxSteps}},
      {"eval.batches", Integer{&r.eval.batches, 1, maxSteps}},
      {"checkpoint.every", Integer{&r.checkpoint.every, 0, maxSteps}},
      {"checkpoint.keep", Integer{&r.checkpoint.keep, 0, 1 << 20}},
      {"gates.require", Gates{&r.gates.require}},
      {"gates.on_miss", choice(r.gates.onMiss, misses)},
      {"gates.rollbacks", Integer{&r.gates.rollbacks, 1, 1 << 20}},
  };
}

std::string shown(const YAML::Node &node) {
  if (node.IsScalar())
    return quote(node.Scalar());
  if (node.IsNull())
    return "null";
  return fmt::format("a {} of {}", node.IsMap() ? "section" : "list",
                     node.size());
}

Status store(const YAML::Node &node, const Slot &slot) {
  return std::visit([&](const auto &each) { return store(node, each); }, slot);
}

std::string printed(const Slot &slot) {
  struct Printer {
    std::string operator()(const Choice &c) {
      return std::string(c.words[size_t(c.get(c.value))]);
    }
    std::string operator()(const Integer &i) {
      return fmt::format("{}", *i.value);
    }
    std::string operator()(const Real &r) {
      return fmt::format("{}", *r.value);
    }
    std::string operator()(const MaybeReal &r) {
      return *r.value ? fmt::format("{}", **r.value) : "null";
    }
    std::string operator()(const Pair &p) {
      return fmt::format("[{}, {}]", (*p.value)[0], (*p.value)[1]);
    }
    std::string operator()(const Path &p) {
      if (!*p.value)
        return "null";
      YAML::Emitter out;
      out << YAML::DoubleQuoted << **p.value;
      return out.c_str();
    }
    std::string operator()(const Words &w) {
      return fmt::format("[{}]", fmt::join(*w.value, ", "));
    }
    std::string operator()(const Gates &g) {
      return fmt::format("[{}]", fmt::join(*g.value, ", "));
    }
  };
  return std::visit(Printer(), slot);
}

} // namespace tessera::recipe
