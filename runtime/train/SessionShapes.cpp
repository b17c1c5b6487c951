// The interface of a model's programs: which inputs and outputs they have, and
// their shapes.
#include "runtime/artifact/Shares.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/train/Distill.h"
#include "runtime/train/Kto.h"
#include "runtime/train/Policy.h"
#include "runtime/train/Preference.h"
#include "runtime/train/Router.h"
#include "runtime/train/SeparateSteps.h"
#include "runtime/train/SessionModel.h"

#include <algorithm>
#include <limits>

namespace tessera {

using artifact::ElementType;

/// vocab_size of config.json, which vision models nest in text_config.
static int64_t vocabSizeOf(const std::string &config) {
  nlohmann::json json = parseShallowJson(config);
  for (const char *nest : {"", "text_config"}) {
    const nlohmann::json *object = &json;
    if (*nest && json.is_object() && json.contains(nest))
      object = &json[nest];
    if (!object->is_object())
      continue;
    auto found = object->find("vocab_size");
    if (found != object->end() && found->is_number_integer())
      return found->get<int64_t>();
  }
  return 0;
}

StatusOr<const hal::TensorInfo *>
SessionModel::port(std::string_view program, std::string_view name, bool output,
                   ElementType type, std::size_t rank) const {
  auto ports = output ? session->outputs(program) : session->inputs(program);
  for (const hal::TensorInfo &tensor : ports)
    if (tensor.name == name && tensor.shape.size() == rank &&
        (tensor.type == type || (rank <= 1 && type == ElementType::f32 &&
                                 tensor.type == ElementType::f64)))
      return &tensor;
  return Status::error("program '{}' has no {} '{}' of {} and rank {}; it was "
                       "compiled by another version, run: {}",
                       program, output ? "output" : "input", name,
                       artifact::EnumNameElementType(type), rank,
                       info.rebuildCommand);
}

/// Dimensions that eval_step has before those of one batch: on a pipeline it
/// takes several.
std::size_t SessionModel::evalDimensions() const {
  if (session->hasProgram("eval_step"))
    for (const hal::TensorInfo &tensor : session->inputs("eval_step"))
      if (tensor.name == "tokens" && tensor.shape.size() == 3)
        return 1;
  return 0;
}

/// The interface of each program that the session has, as
/// docs of the artifact's programs fix it.
Status SessionModel::readShapes() {
  struct Port {
    const char *program, *name;
    bool output;
    ElementType type;
    std::size_t rank;
  };
  const std::size_t more = evalDimensions();
  const Port ports[] = {
      {"init", "seed", false, ElementType::i64, 1},
      {"train_step", "tokens", false, ElementType::i32, 3},
      {"train_step", "targets", false, ElementType::i32, 3},
      {"train_step", "seed", false, ElementType::i64, 1},
      {"train_step", "loss", true, ElementType::f32, 0},
      {"train_step", "grad_norm", true, ElementType::f32, 0},
      {"train_step", "lr", true, ElementType::f32, 0},
      {"train_step", "tokens", true, ElementType::i64, 0},
      {kForwardBackward, "tokens", false, ElementType::i32, 3},
      {kForwardBackward, "targets", false, ElementType::i32, 3},
      {kForwardBackward, "seed", false, ElementType::i64, 1},
      {kForwardBackward, "loss", true, ElementType::f32, 0},
      {kForwardBackward, kTermsOutput, true, ElementType::f32, 0},
      {kForwardBackward, "tokens", true, ElementType::i64, 0},
      {kOptimizerStep, kScaleInput, false, ElementType::f32, 1},
      {kOptimizerStep, "grad_norm", true, ElementType::f32, 0},
      {kOptimizerStep, "lr", true, ElementType::f32, 0},
      {kInitTrained, "seed", false, ElementType::i64, 1},
      {"eval_step", "tokens", false, ElementType::i32, 2 + more},
      {"eval_step", "targets", false, ElementType::i32, 2 + more},
      {"eval_step", "loss_sum", true, ElementType::f32, more},
      {"eval_step", "tokens", true, ElementType::i64, 0},
      {"logits", "tokens", false, ElementType::i32, 2},
      {"logits", "logits", true, ElementType::f32, 3},
  };
  info.vocabSize = vocabSizeOf(info.modelConfig);
  for (const Port &each : ports) {
    if (!session->hasProgram(each.program))
      continue;
    auto found =
        port(each.program, each.name, each.output, each.type, each.rank);
    if (!found.ok())
      return found.status();
    std::span<const int64_t> shape = (*found)->shape;
    bool isTokens = !each.output && each.name == std::string_view("tokens");
    if (isTokens && each.program == std::string_view("eval_step")) {
      info.evalBatches = more ? shape[0] : 1;
      info.evalRows = shape[more];
      if (stepProgram().empty())
        info.sequence = shape.back();
      if (shape.back() != info.sequence)
        return Status::error("eval_step takes sequences of {}, {} of {}; run: "
                             "{}",
                             shape.back(), stepProgram(), info.sequence,
                             info.rebuildCommand);
    } else if (isTokens && each.rank == 3) {
      info.microbatches = shape[0];
      info.rows = shape[1];
      info.sequence = shape[2];
    } else if (isTokens) {
      context = shape[1];
    } else if (each.rank == 3 && each.output) {
      info.vocabSize = shape[2];
      scores.resize((*found)->elements());
    }
  }
  TESSERA_RETURN_IF_ERROR(readDocuments());
  if (info.vocabSize < 1)
    return Status::error("the artifact's config.json has no vocab_size; run: "
                         "{}",
                         info.rebuildCommand);
  TESSERA_RETURN_IF_ERROR(readRouterShape());
  return readTaskShapes();
}

Status SessionModel::readDocuments() {
  for (std::string_view program :
       {stepProgram(), std::string_view("eval_step")})
    if (session->hasProgram(program)) {
      for (const hal::TensorInfo &tensor : session->inputs(program)) {
        info.documents.starts |= tensor.name == kStartsInput;
        info.documents.numbers |= tensor.name == kNumbersInput;
        info.documents.reference |= tensor.name == kReferenceInput;
        info.documents.samples |= tensor.name == kBehaviorInput;
        info.documents.values |= tensor.name == kValuesInput;
        info.documents.labels |= tensor.name == kLabelsInput;
      }
      TESSERA_RETURN_IF_ERROR(readTeacherShapes(program));
    }
  return Status::success();
}

/// Of each token K tokens of a teacher and K + 1 log-probabilities, in all
/// programs the same K.
Status SessionModel::readTeacherShapes(std::string_view program) {
  const hal::TensorInfo *ids = nullptr, *logProbs = nullptr, *batch = nullptr;
  for (const hal::TensorInfo &tensor : session->inputs(program))
    for (auto [name, found] : {std::pair(std::string_view("targets"), &batch),
                               std::pair(kTeacherTokensInput, &ids),
                               std::pair(kTeacherLogProbsInput, &logProbs)})
      if (tensor.name == name)
        *found = &tensor;
  if (!ids && !logProbs)
    return Status::success();
  const auto is = [&](const hal::TensorInfo &tensor, ElementType type,
                      int64_t width) {
    std::vector<int64_t> shape(batch->shape.begin(), batch->shape.end());
    shape.push_back(width);
    return tensor.type == type && std::ranges::equal(tensor.shape, shape);
  };
  const int64_t top = ids && !ids->shape.empty() ? ids->shape.back() : 0;
  if (!batch || !logProbs || top < 1 ||
      top > std::numeric_limits<uint16_t>::max() ||
      !is(*ids, ElementType::i32, top) ||
      !is(*logProbs, ElementType::f32, top + 1) ||
      (info.documents.teacher > 0 && info.documents.teacher != top))
    return Status::error("inputs '{}' and '{}' of {} are not K tokens of a "
                         "teacher and K + 1 numbers for each of a batch; it "
                         "was compiled by another version, run: {}",
                         kTeacherTokensInput, kTeacherLogProbsInput, program,
                         info.rebuildCommand);
  info.documents.teacher = uint16_t(top);
  return Status::success();
}

/// Models without experts have no such output.
Status SessionModel::readRouterShape() {
  if (!session->hasProgram("train_step"))
    return Status::success();
  for (const hal::TensorInfo &tensor : session->outputs("train_step"))
    if (tensor.name == kRouterOutput) {
      if (tensor.type != ElementType::f32 || tensor.shape.size() != 2 ||
          tensor.shape[1] != int64_t(kRouterColumns))
        return Status::error("output '{}' of train_step has no {} columns of "
                             "f32; it was compiled by another version, run: {}",
                             kRouterOutput, kRouterColumns,
                             info.rebuildCommand);
      router.resize(tensor.elements());
    }
  return Status::success();
}

Status SessionModel::readValueShape() {
  for (const hal::TensorInfo &tensor : session->outputs("eval_step")) {
    if (tensor.name != kValuesOutput)
      continue;
    const bool isReal =
        tensor.type == ElementType::f32 || tensor.type == ElementType::f64;
    // Outputs are whole on every rank, and the batch is a rank's part.
    const auto tokens =
        uint64_t(info.evalBatches * info.evalRows * info.sequence);
    const bool isShare = artifact::Mesh(session->artifact()).ranks() > 1;
    if (!isReal || (isShare ? tensor.elements() % tokens != 0
                            : tensor.elements() != tokens))
      return Status::error("output '{}' of eval_step is not a number for each "
                           "token; it was compiled by another version, run: {}",
                           kValuesOutput, info.rebuildCommand);
    tokenValues.resize(tensor.elements());
    hasWideValues = tensor.type == ElementType::f64;
  }
  return Status::success();
}

/// Only programs that learn from answers have such outputs.
Status SessionModel::readTaskShapes() {
  if (session->hasProgram("eval_step"))
    TESSERA_RETURN_IF_ERROR(readValueShape());
  if (!session->hasProgram("train_step"))
    return Status::success();
  auto recipe = recipe::parseRecipe(info.recipe, "the artifact's recipe");
  if (!recipe.ok())
    return recipe.status();
  const std::size_t policyColumns = kPolicyColumns -
                                    (info.documents.reference ? 0 : 1) +
                                    (info.documents.values ? kValueColumns : 0);
  const std::size_t pairColumns = recipe->task == recipe::Task::Reward
                                      ? kRewardColumns
                                      : kPreferenceColumns;
  const std::size_t distillColumns =
      kDistillColumns - (recipe->distill.weight < 1 ? 0 : 1);
  for (const hal::TensorInfo &tensor : session->outputs("train_step"))
    for (auto [name, columns, values] :
         {std::tuple(kPreferenceOutput, pairColumns, &preference),
          std::tuple(kPolicyOutput, policyColumns, &policy),
          std::tuple(kKtoOutput, kKtoColumns, &kto),
          std::tuple(kDistillOutput, distillColumns, &distill)}) {
      if (tensor.name != name)
        continue;
      if (tensor.type != ElementType::f32 || tensor.elements() != columns)
        return Status::error("output '{}' of train_step has no {} numbers of "
                             "f32; it was compiled by another version, run: {}",
                             name, columns, info.rebuildCommand);
      values->resize(columns);
    }
  return Status::success();
}

} // namespace tessera
