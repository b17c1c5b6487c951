#include <nlohmann/json.hpp>

#include "parallelism/planner/Report.h"

namespace tessera::planner {
namespace {

using Json = nlohmann::ordered_json;

Json planJson(const ParallelPlan &plan) {
  return {{"pipe", plan.pipe},
          {"interleave", plan.interleave},
          {"tensor", plan.tensor},
          {"context", plan.context},
          {"expert", plan.expert},
          {"expert_tensor", plan.expertTensor},
          {"data", plan.data},
          {"replicate", plan.replicate},
          {"zero", plan.zero},
          {"micro", plan.micro},
          {"recompute", std::string(name(plan.recompute))},
          {"schedule", std::string(name(plan.schedule))},
          {"stages", plan.evenStages ? "even" : "balanced"}};
}

Json memoryJson(const Memory &memory) {
  return {{"weights", memory.weights},     {"gradients", memory.gradients},
          {"optimizer", memory.optimizer}, {"activations", memory.activations},
          {"buffers", memory.buffers},     {"workspace", memory.workspace},
          {"total", memory.total()}};
}

Json stepJson(const StepCost &cost) {
  return {{"seconds", cost.total},
          {"microbatches", cost.microbatches},
          {"compute", cost.perRank.compute},
          {"recomputation", cost.perRank.recompute},
          {"exposed",
           {{"tensor", cost.perRank.tensor},
            {"expert", cost.perRank.expert},
            {"context", cost.perRank.context},
            {"data", cost.data},
            {"pipe", cost.send}}},
          {"overlap_tax", cost.perRank.tax},
          {"uneven_stages", cost.uneven},
          {"bubble", cost.bubble},
          {"optimizer", cost.optimizer},
          {"bubble_share", cost.bubbleShare()},
          {"mfu", cost.utilization},
          {"tokens_per_second", cost.tokensPerSecond}};
}

Json candidateJson(const Candidate &candidate) {
  Json json = {{"plan", planJson(candidate.plan)},
               {"memory", memoryJson(candidate.memory)},
               {"step", stepJson(candidate.cost)}};
  if (const std::optional<ProgramCost> &program = candidate.program)
    json["program"] = {{"state", program->state},
                       {"arena", program->arena},
                       {"bytes", program->bytes},
                       {"whole", program->whole},
                       {"seconds", program->seconds},
                       {"utilization", candidate.utilization()}};
  return json;
}

Json searchJson(const SearchResult &result) {
  Json killed = Json::object();
  for (size_t i = 1; i < result.killed.size(); ++i)
    if (result.killed[i].plans > 0)
      killed[std::string(name(Constraint(i)))] = result.killed[i].plans;
  Json best = Json::array();
  for (const Candidate &each : result.best)
    best.push_back(candidateJson(each));
  return {{"considered", result.considered},
          {"fitting", result.fitting},
          {"ruled_out", killed},
          {"best", best}};
}

} // namespace

std::string answerJson(const Question &question, const Answer &answer) {
  Json json = candidateJson(answer.chosen);
  json["fits"] = answer.fits;
  json["model"] = {{"name", question.modelName},
                   {"parameters", question.model.parameters()},
                   {"active_parameters", question.model.activeParameters()},
                   {"flops_per_token",
                    question.model.flopsPerToken(question.workload.sequence)}};
  json["cluster"] = {{"name", question.cluster.name},
                     {"gpus", question.cluster.gpus()}};
  Economics cost = economics(question, answer.chosen.cost);
  if (question.tokens > 0)
    json["training"] = {{"tokens", question.tokens},
                        {"days", cost.days},
                        {"gpu_hours", cost.gpuHours},
                        {"price", cost.price}};
  if (cost.checkpoints)
    json["checkpoints"] = {{"young", cost.checkpoints->young},
                           {"daly", cost.checkpoints->daly},
                           {"mean_time_between_failures",
                            cost.checkpoints->meanTimeBetweenFailures},
                           {"lost_share", cost.checkpoints->lostShare}};
  if (answer.search)
    json["search"] = searchJson(*answer.search);
  for (const ScaleOut &row : answer.scaleOut) {
    Json scaled = {{"gpus", row.gpus}, {"global_batch", row.globalBatch}};
    if (row.same)
      scaled["same_plan"] = candidateJson(*row.same);
    if (row.best)
      scaled["best"] = candidateJson(*row.best);
    json["scale_out"].push_back(scaled);
  }
  // Names come from arbitrary files; invalid UTF-8 in them is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace tessera::planner
