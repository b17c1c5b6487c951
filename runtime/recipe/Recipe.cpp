// One table of keys; reading, overriding, suggesting and printing follow it.
#include "runtime/recipe/Recipe.h"

#include <set>
#include <tuple>

#include "runtime/recipe/MetricGate.h"
#include "runtime/recipe/RecipeSchema.h"
#include "runtime/recipe/YamlDocument.h"
#include "runtime/support/Text.h"

namespace tessera::recipe {
namespace {

constexpr int64_t maxFileBytes = 1 << 16;
constexpr int64_t maxBatchTokens = int64_t(1) << 31;

// The present name of a key or section that older recipes have; empty if none.
std::string renamedKey(std::string_view key) {
  constexpr std::string_view old = "schedule", present = "lr_schedule";
  if (!key.starts_with(old) ||
      (key.size() > old.size() && key[old.size()] != '.'))
    return "";
  return std::string(present) + std::string(key.substr(old.size()));
}

/// Reads a document into the slots of the schema.
class Reader {
public:
  Reader(Recipe &recipe, std::string file)
      : fields(schema(recipe)), file(std::move(file)) {}

  Status section(const YAML::Node &node, const std::string &prefix) {
    std::set<std::string> seen;
    for (const auto &entry : node) {
      if (!entry.first.IsScalar())
        return at(entry.first, prefix, "keys must be plain words");
      std::string key = prefix + entry.first.Scalar();
      if (!seen.insert(key).second)
        return at(entry.first, key, "is given twice; keep one");
      TESSERA_RETURN_IF_ERROR(value(entry.first, entry.second, key));
    }
    return Status::success();
  }

  /// Stores `node` under `key`; the error does not say where.
  Status assign(const std::string &key, const YAML::Node &node) {
    for (const Field &field : fields)
      if (field.key == key)
        return store(node, field.slot);
    if (isSection(key))
      return Status::error("is a section; give one of its keys");
    if (std::string renamed = renamedKey(key); !renamed.empty())
      return Status::error("was renamed to '{}'", renamed);
    return Status::error("is not a recipe key{}", nearest(key));
  }

private:
  Status value(const YAML::Node &keyNode, const YAML::Node &node,
               const std::string &key) {
    if (!isSection(key)) {
      Status status = assign(key, node);
      return status.ok() ? status : at(keyNode, key, status.message());
    }
    if (node.IsNull()) // "data:" with its keys commented out
      return Status::success();
    if (!node.IsMap())
      return at(keyNode, key, "must be a section, got " + shown(node));
    return section(node, key + ".");
  }

  bool isSection(const std::string &key) const {
    for (const Field &field : fields)
      if (field.key.size() > key.size() && field.key[key.size()] == '.' &&
          field.key.substr(0, key.size()) == key)
        return true;
    return false;
  }

  /// Suggests a whole key, or for a bare last part the key that ends in it.
  std::string nearest(const std::string &key) const {
    std::vector<std::string_view> keys;
    for (const Field &field : fields) {
      if (size_t dot = field.key.find('.'); dot != field.key.npos) {
        if (field.key.substr(dot + 1) == key)
          return fmt::format(", did you mean '{}'?", field.key);
        std::string_view head = field.key.substr(0, dot);
        if (keys.empty() || keys.back() != head)
          keys.push_back(head);
      }
      keys.push_back(field.key);
    }
    return suggestion(key, keys);
  }

  Status at(const YAML::Node &node, const std::string &key,
            const std::string &what) const {
    return Status::error("{}:{}: key {}: {}", file, node.Mark().line + 1,
                         quote(key), what);
  }

  std::vector<Field> fields;
  std::string file;
};

Status parseDocument(std::string_view text, const std::string &file,
                     Recipe &recipe) {
  return readYaml(text, file, [&](const YAML::Node &document) -> Status {
    if (document.IsNull())
      return Status::success();
    if (!document.IsMap())
      return Status::error("{}: is {}, expected sections such as optimizer:",
                           file, shown(document));
    return Reader(recipe, file).section(document, "");
  });
}

} // namespace

static Status misfit(std::string_view key, std::string_view fits) {
  return Status::error("{} has no meaning here: it belongs to {}; leave it "
                       "out, or change the task",
                       key, fits);
}

static Status checkPreference(const Recipe &recipe) {
  const Recipe::Preference &preference = recipe.preference;
  const Recipe::Preference usual;
  if (!hasPairs(recipe.task))
    return preference == usual
               ? Status::success()
               : misfit("preference", "task: dpo, orpo, simpo and reward");
  if (recipe.task == Task::Reward && preference.beta != usual.beta)
    return misfit("preference.beta", "task: dpo, orpo and simpo");
  if (recipe.task != Task::Reward && preference.center != usual.center)
    return misfit("preference.center", "task: reward");
  if (recipe.task != Task::Simpo && preference.margin != usual.margin)
    return misfit("preference.margin", "task: simpo");
  if (recipe.task != Task::Dpo && preference.loss != usual.loss)
    return misfit("preference.loss", "task: dpo");
  if (recipe.task != Task::Dpo && preference.reference != usual.reference)
    return misfit("preference.reference", "task: dpo; the others have none");
  if (preference.labelSmoothing != 0 &&
      (recipe.task != Task::Dpo || preference.loss != PreferenceLoss::Sigmoid))
    return misfit("preference.label_smoothing",
                  "task: dpo with preference.loss: sigmoid");
  return Status::success();
}

static Status checkGae(const Recipe &recipe) {
  const Recipe::Policy &policy = recipe.policy;
  const Recipe::Policy usual;
  if (policy.advantages == Advantages::Gae)
    return recipe.rollout.baseline == Baseline::None
               ? Status::success()
               : Status::error("policy.advantages: gae compares rewards with a "
                               "value head; set rollout.baseline and "
                               "rollout.scale to none");
  if (policy.gae != usual.gae)
    return misfit("policy.gae", "policy.advantages: gae");
  return policy.value == usual.value
             ? Status::success()
             : misfit("policy.value", "policy.advantages: gae");
}

static Status checkPolicy(const Recipe &recipe) {
  const Recipe::Policy &policy = recipe.policy;
  const Recipe::Policy usual;
  if (recipe.task != Task::Policy && policy != usual)
    return misfit("policy", "task: policy");
  if (recipe.task != Task::Policy)
    return recipe.rollout == Recipe::Rollout()
               ? Status::success()
               : misfit("rollout", "task: policy");
  TESSERA_RETURN_IF_ERROR(checkGae(recipe));
  const Recipe::Rollout &rollout = recipe.rollout;
  if (rollout.prompts % rollout.minibatches != 0)
    return Status::error("rollout.prompts = {} is not a multiple of "
                         "rollout.minibatches = {}; change one of them",
                         rollout.prompts, rollout.minibatches);
  if (rollout.baseline == Baseline::None && rollout.scale == RewardScale::Group)
    return Status::error("rollout.baseline: none leaves no difference to "
                         "divide; set rollout.scale: none");
  if (rollout.baseline != Baseline::None && rollout.group < 2)
    return Status::error("rollout.group = 1 leaves nothing to compare a reward "
                         "with; raise it, or set rollout.baseline and "
                         "rollout.scale to none");
  if (policy.kl.beta == 0 && policy.kl.estimator != usual.kl.estimator)
    return misfit("policy.kl.estimator", "policy.kl.beta above 0");
  const bool isConstant = policy.aggregate == PolicyAggregate::Constant;
  if (!isConstant && policy.length != 0)
    return misfit("policy.length", "policy.aggregate: constant");
  if (isConstant && policy.length == 0)
    return Status::error("policy.aggregate: constant divides by policy.length; "
                         "give it, such as the most tokens of an answer");
  return Status::success();
}

static Status checkTask(const Recipe &recipe) {
  TESSERA_RETURN_IF_ERROR(checkPreference(recipe));
  TESSERA_RETURN_IF_ERROR(checkPolicy(recipe));
  if (recipe.task != Task::Kto && recipe.kto != Recipe::Kto())
    return misfit("kto", "task: kto");
  if (recipe.task != Task::Distill && recipe.distill != Recipe::Distill())
    return misfit("distill", "task: distill");
  if (recipe.task != Task::Sft && recipe.data.documents != Documents::Separate)
    return Status::error("task: {} {} documents; set data.documents: separate",
                         name(recipe.task),
                         hasPairs(recipe.task) ? "compares" : "learns from");
  return Status::success();
}

static Status checkGates(const Recipe &recipe) {
  const Recipe::Gates &gates = recipe.gates;
  if (gates.require.empty())
    return gates == Recipe::Gates()
               ? Status::success()
               : Status::error("gates.on_miss and gates.rollbacks have no "
                               "meaning without gates.require; add it, or "
                               "leave them out");
  const bool isPolicy = recipe.task == Task::Policy;
  const std::string_view measured = isPolicy ? kEvalReward : kEvalLoss;
  for (const std::string &text : gates.require)
    if (auto gate = parseMetricGate(text);
        gate.ok() && gate->metric != measured)
      return Status::error("gates.require: task: {} has {}, not {}",
                           name(recipe.task), measured, gate->metric);
  if (recipe.eval.every == 0)
    return Status::error("gates.require needs evaluations; set eval.every");
  if (gates.onMiss != OnMiss::RollBack &&
      gates.rollbacks != Recipe::Gates().rollbacks)
    return misfit("gates.rollbacks", "gates.on_miss: roll_back");
  if (gates.onMiss == OnMiss::RollBack && isPolicy)
    return Status::error("gates.on_miss: roll_back goes on with the data that "
                         "follows, which task: policy has none of; use stop "
                         "or note");
  return Status::success();
}

// The error names the keys, not a line: either may be the one that is wrong.
Status checkTogether(const Recipe &recipe) {
  TESSERA_RETURN_IF_ERROR(checkTask(recipe));
  TESSERA_RETURN_IF_ERROR(checkGates(recipe));
  Recipe::Adapter unused;
  unused.kind = recipe.adapter.kind;
  if (recipe.adapter.kind == AdapterKind::None && recipe.adapter != unused)
    return Status::error("the keys of adapter have no meaning without "
                         "adapter.kind: lora or dora; add it, or leave them "
                         "out");
  if (recipe.adapter.kind == AdapterKind::Dora && recipe.adapter.dropout > 0)
    return Status::error("adapter.dropout is not supported with adapter.kind: "
                         "dora; leave it out, or choose lora");
  if (recipe.adapter.base == AdapterBase::Bf16 &&
      recipe.compute != Precision::Bf16)
    return Status::error("adapter.base: bf16 needs precision.compute: bf16, "
                         "got {}; change one of them",
                         name(recipe.compute));
  if (isQuantized(recipe.adapter.base) && recipe.compute == Precision::Fp64)
    return Status::error("adapter.base: {} is dequantized to fp32 or bf16, "
                         "and precision.compute is fp64; change one of them",
                         name(recipe.adapter.base));
  if (recipe.adapter.base == AdapterBase::Fp8 &&
      recipe.inference.zeros != ZeroPoints::None)
    return Status::error("inference.zeros: adapter.base: fp8 has no zero "
                         "points; leave it out, or choose int8 or int4");
  if (recipe.schedule.warmup > recipe.schedule.total)
    return Status::error(
        "lr_schedule.warmup = {} is more than lr_schedule.total = "
        "{}; lower warmup or raise total",
        recipe.schedule.warmup, recipe.schedule.total);
  if (recipe.optimizer.name == OptimizerKind::AdamW &&
      recipe.optimizer.momentum != 0)
    return Status::error("optimizer.momentum = {} has no meaning for adamw; "
                         "set betas, or choose optimizer.name = sgd",
                         recipe.optimizer.momentum);
  if (int64_t group = recipe.inference.group;
      group != 32 && group != 64 && group != 128)
    return Status::error("inference.group = {} columns to a scale; give 32, 64 "
                         "or 128",
                         group);
  return checkBatch(recipe.batch);
}

Status checkBatch(const Recipe::Batch &batch) {
  for (auto [key, value, most] :
       {std::tuple("batch.micro", batch.micro, Recipe::Batch::mostSequences),
        {"batch.accumulate", batch.accumulate, Recipe::Batch::mostSequences},
        {"batch.sequence", batch.sequence, Recipe::Batch::mostLength}})
    if (value < 1 || value > most)
      return Status::error("{} = {} is not between 1 and {}", key, value, most);
  // 2^16 * 2^16 * 2^27 does not overflow.
  if (batch.tokens() > maxBatchTokens)
    return Status::error("batch.micro * batch.accumulate * batch.sequence = {} "
                         "tokens a step, more than {}; lower one of them",
                         batch.tokens(), maxBatchTokens);
  return Status::success();
}

Status applyOverride(Recipe &recipe, std::string_view assignment) {
  size_t equals = assignment.find('=');
  std::string shownText = quote(assignment);
  if (equals == assignment.npos || equals == 0)
    return Status::error("--set {}: expected KEY=VALUE, for example "
                         "optimizer.lr=3e-4",
                         shownText);
  std::string key(assignment.substr(0, equals));
  Status status;
  try {
    YAML::Node value = loadOne(std::string(assignment.substr(equals + 1)));
    status = Reader(recipe, "").assign(key, value);
  } catch (const YAML::Exception &problem) {
    status = Status::error("is not a valid value: {}", oneLine(problem.msg));
  }
  if (status.ok())
    return status;
  return Status::error("--set {}: key {}: {}", shownText, quote(key),
                       status.message());
}

StatusOr<Recipe> parseRecipe(std::string_view text, const std::string &file,
                             std::span<const std::string> overrides) {
  Recipe recipe;
  TESSERA_RETURN_IF_ERROR(parseDocument(text, file, recipe));
  for (const std::string &each : overrides)
    TESSERA_RETURN_IF_ERROR(applyOverride(recipe, each));
  if (Status status = checkTogether(recipe); !status.ok())
    return Status::error("{}: {}", file, status.message());
  return recipe;
}

StatusOr<Recipe> loadRecipe(const std::string &path,
                            std::span<const std::string> overrides) {
  if (path.empty())
    return parseRecipe("", "default recipe", overrides);
  StatusOr<std::string> text = readTextFile(path, maxFileBytes);
  if (!text.ok())
    return text.status();
  return parseRecipe(*text, path, overrides);
}

std::string printRecipe(const Recipe &recipe) {
  Recipe copy = recipe; // the schema points into a mutable recipe
  std::string result;
  std::string_view last; // the key before
  for (const Field &field : schema(copy)) {
    std::string indent;
    size_t begin = 0;
    for (size_t dot; (dot = field.key.find('.', begin)) != field.key.npos;
         begin = dot + 1, indent += "  ")
      if (!last.starts_with(field.key.substr(0, dot + 1)))
        result += fmt::format("{}{}:\n", indent,
                              field.key.substr(begin, dot - begin));
    result += fmt::format("{}{}: {}\n", indent, field.key.substr(begin),
                          printed(field.slot));
    last = field.key;
  }
  return result;
}

} // namespace tessera::recipe
