#include "compiler/api/PlanPrograms.h"
#include "compiler/Files.h"
#include "compiler/api/ProgramMemory.h"
#include "hardware/Quantity.h"
#include "models/HfConfig.h"
#include "parallelism/planner/PlanFile.h"
#include <algorithm>
#include <fmt/format.h>

using namespace tessera;
using namespace tessera::planner;

namespace {
/// A plan and the fullest rank of its program.
struct CompiledPlan {
  Candidate candidate;
  RankMemory program;
  bool fits = false; ///< the program, with the libraries, in a device
};
} // namespace

static double neededBytes(const Question &question, const RankMemory &program) {
  return static_cast<double>(program.total()) + question.workload.libraryBytes;
}

// Compiles `candidate` up to the execution plan. An error if the compiler
// refuses it.
static StatusOr<CompiledPlan> compilePlan(const PlanProgramOptions &options,
                                          const Question &question,
                                          const Candidate &candidate) {
  if (std::string reason =
          whyNotCompiled(question.model, question.workload, candidate.plan);
      !reason.empty())
    return Status::error("the compiler does not build {}: {}",
                         describe(candidate.plan), reason);
  const std::string &target = question.cluster.gpu.target;
  if (target.empty())
    return Status::error("{} has no gpu.target to compile for; add it to its "
                         "file, such as target: cuda:sm_80",
                         question.cluster.name);
  const MeshPlan plan = meshPlanOf(question.workload, candidate.plan);
  CompileRequest request;
  request.spec = options.spec;
  request.recipe = options.recipe;
  request.set = options.set;
  for (std::string &key : recipeKeys(plan))
    request.set.push_back(std::move(key));
  request.mesh = meshText(plan);
  request.targets = {target};
  request.cluster = ratesOf(question.cluster);
  if (options.note)
    options.note(fmt::format("compiling {} …", describe(candidate.plan)));
  StatusOr<RankMemory> program = programMemory(std::move(request));
  if (!program.ok())
    return Status::error("{}: {}", describe(candidate.plan), program.message());
  CompiledPlan compiled{candidate, program.take()};
  compiled.fits = neededBytes(question, compiled.program) <=
                  usableMemory(question.cluster.gpu);
  return compiled;
}

// State, arena and what was planned.
static std::string programTable(const Question &question,
                                const std::vector<CompiledPlan> &plans) {
  std::string text = fmt::format(
      "compiled to the execution plan; GB of the fullest rank, of {:.1f}, "
      "libraries {:.1f}:\n{:>8}{:>8}{:>8}{:>9}{:>8}  plan\n",
      usableMemory(question.cluster.gpu) / 1e9,
      question.workload.libraryBytes / 1e9, "state", "arena", "in all",
      "planned", "off");
  for (const CompiledPlan &each : plans) {
    const double needed = neededBytes(question, each.program);
    const double planned = each.candidate.bytes();
    text += fmt::format(
        "{:>8.2f}{:>8.2f}{:>8.2f}{:>9.2f}{:>+7.1f} %  {}{}\n",
        static_cast<double>(each.program.state) / 1e9,
        static_cast<double>(each.program.arena) / 1e9, needed / 1e9,
        planned / 1e9, 100 * (planned / needed - 1),
        describe(each.candidate.plan), each.fits ? "" : ": does not fit");
  }
  return text;
}

static PlanFile planFileOf(const Question &question, const CompiledPlan &plan) {
  PlanFile file;
  file.model = question.modelName;
  file.parameters = question.model.parameters();
  file.cluster = ratesOf(question.cluster);
  file.target = question.cluster.gpu.target;
  file.plan = meshPlanOf(question.workload, plan.candidate.plan);
  file.predicted = {plan.candidate.seconds(), plan.program.state,
                    plan.program.arena};
  return file;
}

std::string tessera::whyNotBuilt(const std::string &spec,
                                 const Question &question) {
  StatusOr<models::LoadedConfig> config = models::loadHfConfig(spec);
  if (!config.ok())
    return std::string(config.message());
  if (config->stored)
    return "quantized weights cannot be trained";
  if (question.workload.fp8)
    return "it computes in bf16, not in fp8";
  if (question.model.futureLayers > 0)
    return "it leaves out multi-token prediction (num_nextn_predict_layers), "
           "which the plan counts; set it to 0";
  return "";
}

// The plans to compile: the chosen one, then the fastest others.
static std::vector<Candidate> candidatesOf(const Answer &answer) {
  std::vector<Candidate> all = {answer.chosen};
  if (answer.search)
    for (const Candidate &each : answer.search->best)
      if (!(each.plan == answer.chosen.plan))
        all.push_back(each);
  return all;
}

// As many plans as --prove says; for --output at least until a program fits.
static StatusOr<std::vector<CompiledPlan>>
compileSome(const PlanProgramOptions &options, const Question &question,
            const Answer &answer) {
  const bool writes = !options.output.empty();
  std::vector<CompiledPlan> all;
  bool fits = false;
  for (const Candidate &each : candidatesOf(answer)) {
    if (all.size() >= options.count && (fits || !writes))
      break;
    StatusOr<CompiledPlan> compiled = compilePlan(options, question, each);
    if (!compiled.ok())
      return compiled.status();
    fits |= compiled->fits;
    all.push_back(compiled.take());
  }
  return all;
}

// Writes the first plan whose program fits, which becomes the answer.
static Status writePlan(const PlanProgramOptions &options,
                        const Question &question,
                        const std::vector<CompiledPlan> &plans,
                        Answer &answer) {
  auto found = std::ranges::find_if(plans, &CompiledPlan::fits);
  if (found == plans.end()) {
    auto smallest = std::ranges::min_element(
        plans, {}, [](auto &each) { return each.program.total(); });
    return Status::error(
        "-o {}: the program of no plan fits {}: of {} that were compiled, {} "
        "needs least, {} and the libraries",
        options.output, formatBytes(usableMemory(question.cluster.gpu)),
        plans.size(), describe(smallest->candidate.plan),
        formatBytes(double(smallest->program.total())));
  }
  answer.chosen = found->candidate;
  const std::string text = printPlanFile(planFileOf(question, *found));
  if (llvm::Error error = writeFile(options.output, {llvm::StringRef(text)}))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

StatusOr<std::string> tessera::compilePlans(const PlanProgramOptions &options,
                                            const Question &question,
                                            Answer &answer) {
  if (std::string reason = whyNotBuilt(options.spec, question);
      !reason.empty()) {
    if (!options.output.empty() || options.count > 0)
      return Status::error("{}: the compiler does not build it: {}",
                           question.modelName, reason);
    return fmt::format("not compiled: {}\n", reason);
  }
  StatusOr<std::vector<CompiledPlan>> plans =
      compileSome(options, question, answer);
  if (!plans.ok())
    return plans.status();
  if (!options.output.empty())
    TESSERA_RETURN_IF_ERROR(writePlan(options, question, *plans, answer));
  if (!plans->empty())
    return programTable(question, *plans);
  if (std::string reason =
          whyNotCompiled(question.model, question.workload, answer.chosen.plan);
      !reason.empty())
    return fmt::format("not compiled: {}\n", reason);
  return std::string();
}
