#include "runtime/train/RunRecipe.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <yaml-cpp/yaml.h>

namespace tessera {
namespace {

/// A number that goes into a slot of the hyperparameter tensor.
struct HyperKey {
  std::string_view key;
  HyperSlot slot;
  double least, most; // inclusive
  bool whole = false;
};

// 2^24 is the last step number that fp32 counts exactly.
constexpr double kMaxSteps = 16777216, kHuge = 1e30, kBelowOne = 0.99999994;
constexpr HyperKey kHyperKeys[] = {
    {"optimizer.lr", HyperSlot::lr, 0, kHuge},
    {"optimizer.eps", HyperSlot::eps, 0, kHuge},
    {"optimizer.weight_decay", HyperSlot::weightDecay, 0, kHuge},
    {"optimizer.momentum", HyperSlot::momentum, 0, kBelowOne},
    {"optimizer.clip", HyperSlot::clip, 0, kHuge},
    {"schedule.warmup", HyperSlot::warmup, 0, kMaxSteps, true},
    {"schedule.total", HyperSlot::total, 1, kMaxSteps, true},
    {"schedule.min_ratio", HyperSlot::minRatio, 0, 1},
};
constexpr std::string_view kBetas = "optimizer.betas";

struct RunKey {
  std::string_view key;
  int64_t RunRecipe::*number;
  std::string RunRecipe::*text;
  int64_t least = 0;
};
constexpr RunKey kRunKeys[] = {
    {"seed", &RunRecipe::seed, nullptr, INT64_MIN},
    {"data.train", nullptr, &RunRecipe::trainData},
    {"data.eval", nullptr, &RunRecipe::evalData},
    {"eval.every", &RunRecipe::evalEvery, nullptr},
    {"eval.batches", &RunRecipe::evalBatches, nullptr, 1},
    {"checkpoint.every", &RunRecipe::checkpointEvery, nullptr},
    {"checkpoint.keep", &RunRecipe::checkpointKeep, nullptr},
};

/// Compiled into the program; the members are for display and checks.
constexpr RunKey kCompiledKeys[] = {
    {"optimizer.name", nullptr, &RunRecipe::optimizer},
    {"schedule.name", nullptr, &RunRecipe::schedule},
    {"precision.compute", nullptr, &RunRecipe::compute},
    {"batch.micro", &RunRecipe::micro, nullptr},
    {"batch.accumulate", &RunRecipe::accumulate, nullptr},
    {"batch.sequence", &RunRecipe::sequence, nullptr},
    {"recompute", nullptr, nullptr},
    {"dropout.rate", nullptr, nullptr},
};

std::optional<double> number(std::string_view text) {
  std::string copy(text);
  char *end = nullptr;
  double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || std::isspace(static_cast<unsigned char>(copy[0])) ||
      *end != '\0' || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<int64_t> wholeNumber(std::string_view text) {
  std::string copy(text);
  char *end = nullptr;
  errno = 0;
  long long value = std::strtoll(copy.c_str(), &end, 10);
  if (copy.empty() || std::isspace(static_cast<unsigned char>(copy[0])) ||
      *end != '\0' || errno == ERANGE)
    return std::nullopt;
  return value;
}

Status setHyper(RunRecipe &recipe, const HyperKey &row, std::string_view text) {
  std::optional<double> value = number(text);
  if (!value || *value < row.least || *value > row.most ||
      (row.whole && *value != std::floor(*value)))
    return Status::error("'{}' must be a {} from {} to {}, got: {}", row.key,
                         row.whole ? "whole number" : "number", row.least,
                         row.most, text);
  recipe.slot(row.slot) = float(*value);
  return Status::success();
}

/// "[0.9, 0.95]" or "0.9,0.95".
Status setBetas(RunRecipe &recipe, std::string_view text) {
  std::string_view inner = text;
  if (inner.starts_with('[') && inner.ends_with(']'))
    inner = inner.substr(1, inner.size() - 2);
  std::size_t comma = inner.find(',');
  auto trimmed = [](std::string_view part) {
    while (part.starts_with(' '))
      part.remove_prefix(1);
    while (part.ends_with(' '))
      part.remove_suffix(1);
    return part;
  };
  std::optional<double> first, second;
  if (comma != inner.npos) {
    first = number(trimmed(inner.substr(0, comma)));
    second = number(trimmed(inner.substr(comma + 1)));
  }
  auto fits = [](double beta) { return beta >= 0 && beta <= kBelowOne; };
  if (!first || !second || !fits(*first) || !fits(*second))
    return Status::error("'{}' must be two numbers from 0 to below 1, such as "
                         "[0.9, 0.95], got: {}",
                         kBetas, text);
  recipe.slot(HyperSlot::beta1) = float(*first);
  recipe.slot(HyperSlot::beta2) = float(*second);
  return Status::success();
}

Status setRow(RunRecipe &recipe, const RunKey &row, std::string_view text) {
  if (row.text) {
    recipe.*row.text = text == "null" ? std::string() : std::string(text);
    return Status::success();
  }
  std::optional<int64_t> value = wholeNumber(text);
  if (!value || *value < row.least)
    return Status::error("'{}' must be a whole number of at least {}, got: {}",
                         row.key, row.least, text);
  recipe.*row.number = *value;
  return Status::success();
}

/// Why this program would not notice a new value of `key`; empty if it would.
std::string_view unreadBecause(const RunRecipe &recipe, std::string_view key) {
  bool sgd = recipe.optimizer == "sgd";
  if (sgd && (key == kBetas || key == "optimizer.eps"))
    return "its optimizer is sgd";
  if (key == "optimizer.momentum" && !sgd)
    return "its optimizer is not sgd";
  if (key == "optimizer.momentum" && !recipe.hasMomentum)
    return "it was compiled without a momentum buffer";
  if (key == "schedule.min_ratio" && recipe.schedule == "constant")
    return "its schedule is constant";
  return {};
}

std::vector<std::string_view> settableKeys() {
  std::vector<std::string_view> keys = {kBetas};
  for (const HyperKey &row : kHyperKeys)
    keys.push_back(row.key);
  for (const RunKey &row : kRunKeys)
    keys.push_back(row.key);
  return keys;
}

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t(0));
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(
          row[j], std::min({row[j] + 1, row[j - 1] + 1,
                            diagonal + std::size_t(a[i - 1] != b[j - 1])}));
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view key) {
  std::vector<std::string_view> keys = settableKeys();
  return *std::min_element(keys.begin(), keys.end(), [&](auto a, auto b) {
    return distance(key, a) < distance(key, b);
  });
}

/// The node at "a.b", or an undefined one; `root` is not changed.
YAML::Node lookUp(const YAML::Node &root, std::string_view key) {
  std::size_t dot = key.find('.');
  if (!root.IsMap())
    return YAML::Node(YAML::NodeType::Undefined);
  const YAML::Node child = root[std::string(key.substr(0, dot))];
  if (dot == key.npos || !child.IsDefined())
    return child;
  if (!child.IsMap())
    return YAML::Node(YAML::NodeType::Undefined);
  return child[std::string(key.substr(dot + 1))];
}

/// Text of a scalar, or of a list of scalars with commas between.
std::optional<std::string> textAt(const YAML::Node &root,
                                  std::string_view key) {
  YAML::Node node = lookUp(root, key);
  if (!node.IsDefined())
    return std::nullopt;
  if (node.IsNull())
    return "null";
  if (node.IsScalar())
    return node.Scalar();
  std::string text;
  if (node.IsSequence())
    for (const YAML::Node &item : node)
      text += (text.empty() ? "" : ",") +
              (item.IsScalar() ? item.Scalar() : std::string("?"));
  return text;
}

Status read(const YAML::Node &root, RunRecipe &recipe) {
  for (const HyperKey &row : kHyperKeys)
    if (auto text = textAt(root, row.key))
      TESSERA_RETURN_IF_ERROR(setHyper(recipe, row, *text));
  if (auto text = textAt(root, kBetas))
    TESSERA_RETURN_IF_ERROR(setBetas(recipe, *text));
  for (std::span<const RunKey> rows : {std::span<const RunKey>(kRunKeys),
                                       std::span<const RunKey>(kCompiledKeys)})
    for (const RunKey &row : rows)
      if (auto text = textAt(root, row.key); text && (row.text || row.number))
        TESSERA_RETURN_IF_ERROR(setRow(recipe, row, *text));
  recipe.hasMomentum =
      recipe.optimizer == "sgd" && recipe.slot(HyperSlot::momentum) != 0;
  return Status::success();
}

/// The shortest decimal that reads back as the same fp32.
std::string shortest(float value) { return fmt::format("{}", value); }

void write(YAML::Node root, std::string_view key, const YAML::Node &value) {
  std::size_t dot = key.find('.');
  if (dot == key.npos)
    root[std::string(key)] = value;
  else
    root[std::string(key.substr(0, dot))][std::string(key.substr(dot + 1))] =
        value;
}

} // namespace

StatusOr<RunRecipe> parseRunRecipe(std::string_view yaml) {
  RunRecipe recipe;
  // The recipe's documented defaults, for keys that an artifact leaves out.
  recipe.slot(HyperSlot::lr) = 3e-4f;
  recipe.slot(HyperSlot::beta1) = 0.9f;
  recipe.slot(HyperSlot::beta2) = 0.95f;
  recipe.slot(HyperSlot::eps) = 1e-8f;
  recipe.slot(HyperSlot::weightDecay) = 0.1f;
  recipe.slot(HyperSlot::clip) = 1.0f;
  recipe.slot(HyperSlot::total) = 1000;
  recipe.slot(HyperSlot::minRatio) = 0.1f;
  try {
    YAML::Node root = YAML::Load(std::string(yaml));
    if (Status status = read(root, recipe); !status.ok())
      return Status::error("recipe of the artifact: {}", status.message());
  } catch (const YAML::Exception &error) {
    return Status::error("recipe of the artifact, line {}: {}",
                         error.mark.line + 1, error.msg);
  }
  return recipe;
}

Status setRecipeKey(RunRecipe &recipe, std::string_view assignment,
                    std::string_view rebuildCommand) {
  std::size_t equals = assignment.find('=');
  if (equals == assignment.npos)
    return Status::error("--set needs KEY=VALUE, such as optimizer.lr=3e-4, "
                         "got: {}",
                         assignment);
  std::string_view key = assignment.substr(0, equals);
  std::string_view value = assignment.substr(equals + 1);
  if (std::string_view reason = unreadBecause(recipe, key); !reason.empty())
    return Status::error("'{}' means nothing to this program, {}; change the "
                         "recipe and run: {}",
                         key, reason, rebuildCommand);
  if (key == kBetas)
    return setBetas(recipe, value);
  for (const HyperKey &row : kHyperKeys)
    if (row.key == key)
      return setHyper(recipe, row, value);
  for (const RunKey &row : kRunKeys)
    if (row.key == key)
      return setRow(recipe, row, value);
  for (const RunKey &row : kCompiledKeys)
    if (row.key == key)
      return Status::error("'{}' is compiled into this program; change it in "
                           "the recipe and run: {}",
                           key, rebuildCommand);
  return Status::error("unknown key '{}', did you mean '{}'?", key,
                       nearest(key));
}

StatusOr<std::string> printRunRecipe(std::string_view yaml,
                                     const RunRecipe &recipe) {
  try {
    YAML::Node root = YAML::Load(std::string(yaml));
    for (const HyperKey &row : kHyperKeys)
      write(root, row.key, YAML::Node(shortest(recipe.slot(row.slot))));
    YAML::Node betas;
    betas.push_back(shortest(recipe.slot(HyperSlot::beta1)));
    betas.push_back(shortest(recipe.slot(HyperSlot::beta2)));
    betas.SetStyle(YAML::EmitterStyle::Flow);
    write(root, kBetas, betas);
    for (const RunKey &row : kRunKeys) {
      YAML::Node value;
      if (row.number)
        value = recipe.*row.number;
      else if (!(recipe.*row.text).empty())
        value = recipe.*row.text;
      write(root, row.key, value);
    }
    YAML::Emitter out;
    out << root;
    return std::string(out.c_str()) + "\n";
  } catch (const YAML::Exception &error) {
    return Status::error("recipe of the artifact, line {}: {}",
                         error.mark.line + 1, error.msg);
  }
}

} // namespace tessera
