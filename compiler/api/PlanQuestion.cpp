#include "compiler/api/PlanQuestion.h"
#include "compiler/api/PlanPrograms.h"
#include "hardware/Quantity.h"
#include "models/Recipe.h"
#include "parallelism/planner/MeshChoice.h"
#include "parallelism/planner/PlanFile.h"
#include "runtime/support/Text.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <tuple>

using namespace tessera;
using namespace tessera::planner;

// Default tokens per step: 4 Mi, usual for large models.
static constexpr int64_t kStepTokens = int64_t(1) << 22;

static StatusOr<double> quantity(const std::string &text, Unit unit,
                                 const char *option) {
  StatusOr<double> value = parseQuantity(text, unit);
  if (!value.ok())
    return Status::error("{}: {}", option, value.message());
  return value;
}

static StatusOr<Cluster> readCluster(const QuestionOptions &options) {
  StatusOr<Cluster> cluster = loadCluster(options.cluster);
  if (!cluster.ok())
    return cluster.status();
  if (options.gpus != 0)
    TESSERA_RETURN_IF_ERROR(resize(*cluster, options.gpus));
  Internode internode;
  const std::tuple<const std::string &, std::optional<double> &, const char *>
      flags[] = {{options.perGpu, internode.perGpu, "--internode-per-gpu"},
                 {options.perNode, internode.perNode, "--internode-per-node"}};
  for (auto &[text, to, option] : flags) {
    if (text.empty())
      continue;
    StatusOr<double> rate = quantity(text, Unit::BytesPerSecond, option);
    if (!rate.ok())
      return rate.status();
    to = *rate;
  }
  TESSERA_RETURN_IF_ERROR(resolveInternode(*cluster, internode));
  return cluster;
}

// Empty: what compiled programs overlap.
static Status readOverlap(std::string_view text, Overlap &overlap) {
  const std::pair<std::string_view, bool *> kinds[] = {
      {"tensor", &overlap.tensor},
      {"expert", &overlap.expert},
      {"data", &overlap.data},
      {"pipe", &overlap.pipe}};
  overlap = text.empty() ? compiledOverlap : Overlap();
  if (text.empty() || text == "all")
    return Status::success();
  overlap = {false, false, false, false};
  while (text != "none" && !text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    auto found =
        std::ranges::find(kinds, part, [](auto &kind) { return kind.first; });
    if (found == std::end(kinds))
      return Status::error("--overlap: unknown kind {}; expected all, none, or "
                           "any of tensor, expert, data, pipe",
                           quote(part));
    *found->second = true;
  }
  return Status::success();
}

// The recipe's workload, or without one a batch that is usual for large models.
static StatusOr<Workload> readWorkload(const QuestionOptions &options,
                                       const Question &question) {
  const ModelShape &model = question.model;
  std::vector<std::string> set = options.set;
  if (options.recipe.empty()) { // whose defaults are for small models
    const int64_t sequence =
        options.sequence ? options.sequence
                         : std::min(Workload().sequence, model.maxPositions);
    const int64_t batch =
        std::clamp<int64_t>(kStepTokens / sequence, 1, 1 << 16);
    set.insert(set.begin(), {"precision.compute=bf16",
                             fmt::format("batch.sequence={}", sequence),
                             fmt::format("batch.micro={}", batch)});
  }
  StatusOr<models::Recipe> recipe = models::loadRecipe(options.recipe, set);
  if (!recipe.ok())
    return recipe.status();
  if (recipe->compute != models::Precision::Bf16 && !question.cluster.host)
    return Status::error("--recipe {}: costs of GPUs are known for bf16 only; "
                         "add --set precision.compute=bf16",
                         options.recipe);
  Workload workload = workloadOf(model, *recipe);
  if (options.sequence)
    workload.sequence = options.sequence;
  if (options.globalBatch)
    workload.globalBatch = options.globalBatch;
  if (workload.sequence > model.maxPositions)
    return Status::error("--sequence {}: the model supports {} tokens",
                         workload.sequence, model.maxPositions);
  return workload;
}

StatusOr<Question> tessera::readQuestion(const QuestionOptions &options) {
  Question question;
  StatusOr<ModelShape> model = loadModelShape(options.spec);
  if (!model.ok())
    return model.status();
  question.model = model.take();
  std::filesystem::path path = options.spec;
  if (path.filename() == "config.json" || path.filename().empty())
    path = path.parent_path();
  question.modelName = oneLine(path.filename().string());
  StatusOr<Cluster> cluster = readCluster(options);
  if (!cluster.ok())
    return cluster.status();
  question.cluster = cluster.take();
  if (!options.tokens.empty()) {
    auto tokens = quantity(options.tokens, Unit::Count, "--tokens");
    if (!tokens.ok())
      return tokens.status();
    question.tokens = *tokens;
  }
  StatusOr<Workload> read = readWorkload(options, question);
  if (!read.ok())
    return read.status();
  Workload &workload = question.workload;
  workload = read.take();
  workload.imbalance = options.imbalance;
  workload.fp8 = options.precision == "fp8";
  if (question.cluster.host)
    workload.libraryBytes = hostLibraryBytes;
  if (workload.fp8 && question.cluster.gpu.fp8 == 0)
    return Status::error("--precision fp8: {} does not support fp8; use bf16",
                         question.cluster.gpu.name);
  TESSERA_RETURN_IF_ERROR(readOverlap(options.overlap, workload.overlap));
  if (whyNotBuilt(options.spec, question).empty())
    question.scope = Scope::Compiled;
  return question;
}
