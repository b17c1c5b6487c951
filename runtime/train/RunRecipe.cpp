#include "runtime/train/RunRecipe.h"
#include "runtime/recipe/BaseLayout.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera {
namespace {

using recipe::OptimizerKind;
using recipe::Recipe;
using recipe::ScheduleKind;

/// Compiled into the program.
constexpr std::string_view kCompiledKeys[] = {
    "optimizer.name",
    "lr_schedule.name",
    "batch.micro",
    "batch.accumulate",
    "batch.sequence",
    "precision.compute",
    "recompute",
    "dropout.rate",
    "moe.balance",
    "moe.balance_weight",
    "moe.z_weight",
    "moe.bias_rate",
    "moe.capacity",
    "moe.drop",
    "moe.noise",
    "moe.balance_warmup",
    "data.documents",
    "adapter.kind",
    "adapter.rank",
    "adapter.alpha",
    "adapter.base",
    "adapter.target",
    "adapter.ranks",
    "adapter.scaling",
    "adapter.dropout",
    "adapter.modules_to_save",
    "moe.dispatch",
    "moe.buffer",
    "task",
};
/// Sections that are, as a whole.
constexpr std::string_view kCompiledSections[] = {"preference.", "policy.",
                                                  "kto."};

bool isCompiled(std::string_view key) {
  return std::ranges::find(kCompiledKeys, key) != std::end(kCompiledKeys) ||
         std::ranges::any_of(kCompiledSections, [&](std::string_view section) {
           return key.starts_with(section);
         });
}

/// Why this program would not notice a new value of `key`; empty if it would.
std::string_view unreadBecause(const RunRecipe &recipe, std::string_view key) {
  bool sgd = recipe.values.optimizer.name == OptimizerKind::Sgd;
  if (sgd && (key == "optimizer.betas" || key == "optimizer.eps"))
    return "its optimizer is sgd";
  if (key == "optimizer.momentum" && !sgd)
    return "its optimizer is not sgd";
  if (key == "optimizer.momentum" && !recipe.hasMomentum)
    return "it was compiled without a momentum buffer";
  if (key == "lr_schedule.min_ratio" &&
      recipe.values.schedule.name == ScheduleKind::Constant)
    return "its schedule is constant";
  return {};
}

} // namespace

std::array<float, kHyperSlots> RunRecipe::hyper() const {
  std::array<float, kHyperSlots> slots = {};
  auto set = [&](HyperSlot slot, auto value) {
    slots[std::size_t(slot)] = float(value);
  };
  set(HyperSlot::lr, values.optimizer.lr);
  set(HyperSlot::beta1, values.optimizer.betas[0]);
  set(HyperSlot::beta2, values.optimizer.betas[1]);
  set(HyperSlot::eps, values.optimizer.eps);
  set(HyperSlot::weightDecay, values.optimizer.weightDecay);
  set(HyperSlot::clip, values.optimizer.clip);
  set(HyperSlot::momentum, values.optimizer.momentum);
  set(HyperSlot::warmup, values.schedule.warmup);
  set(HyperSlot::total, values.schedule.total);
  set(HyperSlot::minRatio, values.schedule.minRatio);
  return slots;
}

std::string RunRecipe::print() const {
  Recipe shown = values;
  for (std::optional<std::string> *path : {&shown.data.train, &shown.data.eval})
    if (*path && !isUtf8(**path))
      path->reset();
  return recipe::printRecipe(shown);
}

StatusOr<RunRecipe> parseRunRecipe(std::string_view yaml) {
  StatusOr<Recipe> values = recipe::parseRecipe(yaml, "the artifact's recipe");
  if (!values.ok())
    return values.status();
  RunRecipe recipe{values.take(), false};
  recipe.hasMomentum = recipe.values.optimizer.name == OptimizerKind::Sgd &&
                       recipe.values.optimizer.momentum != 0;
  return recipe;
}

Status checkSameAdapter(const std::string &checkpoint,
                        const Recipe::Adapter &before,
                        const Recipe::Adapter &now) {
  const std::pair<std::string_view, bool> keys[] = {
      {"kind", before.kind == now.kind},
      {"target", before.target == now.target},
      {"rank", before.rank == now.rank},
      {"ranks", before.ranks == now.ranks},
      {"alpha", before.alpha == now.alpha},
      {"scaling", before.scaling == now.scaling},
      {"modules_to_save", before.modulesToSave == now.modulesToSave}};
  for (const auto &[key, isSame] : keys)
    if (!isSame)
      return Status::error("'{}' was trained with another adapter.{} than this "
                           "program has; resume with the program that wrote "
                           "it, or merge the adapter with tessera export "
                           "--merge and start a new run with --init-from",
                           checkpoint, key);
  return Status::success();
}

Status checkSameBase(const std::string &checkpoint, const Recipe &before,
                     const Recipe &now) {
  if (recipe::baseLayout(before) == recipe::baseLayout(now))
    return Status::success();
  return Status::error("'{}' has a base of other codes (adapter.base, "
                       "inference.group and inference.zeros) than this "
                       "program; resume with the program that wrote it",
                       checkpoint);
}

Status setRecipeKey(RunRecipe &recipe, std::string_view assignment,
                    std::string_view rebuildCommand) {
  std::string_view key = assignment.substr(0, assignment.find('='));
  if (std::string_view reason = unreadBecause(recipe, key); !reason.empty())
    return Status::error("'{}' means nothing to this program, {}; change the "
                         "recipe and run: {}",
                         key, reason, rebuildCommand);
  const bool isOfBase = recipe::isQuantized(recipe.values.adapter.base) &&
                        (key == "inference.group" || key == "inference.zeros");
  if (isCompiled(key) || isOfBase)
    return Status::error("'{}' is compiled into this program; change it in "
                         "the recipe and run: {}",
                         key, rebuildCommand);
  return recipe::applyOverride(recipe.values, assignment);
}

} // namespace tessera
