#include "compiler/report/ProgramReport.h"

#include "compiler/report/Layers.h"
#include "compiler/report/MemoryUse.h"
#include "compiler/report/PipelineSchedule.h"
#include "compiler/report/ShardingMap.h"
#include "compiler/report/Simulation.h"
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/CollectiveTable.h"
#include "runtime/artifact/ElementTypes.h"

namespace tessera::report {

using artifact::toView;

/// Shares whose memory and timeline are shown.
static constexpr std::size_t kMostShares = 16;

std::string ranksOf(const artifact::Share &share) {
  const auto &ranks = *share.ranks();
  const std::uint32_t first = ranks.Get(0), last = ranks.Get(ranks.size() - 1);
  if (ranks.size() == 1)
    return fmt::format("rank {}", first);
  if (last - first + 1 == ranks.size())
    return fmt::format("ranks {} to {}", first, last);
  if (ranks.size() == 2)
    return fmt::format("ranks {} and {}", first, last);
  return fmt::format("ranks {}, {} and {} more", first, ranks.Get(1),
                     ranks.size() - 2);
}

static Json machineJson(const Machine &machine) {
  return {{"name", machine.name},
          {"source", machine.source},
          {"bf16", machine.peaks.bf16},
          {"tf32", machine.peaks.tf32},
          {"fp32", machine.peaks.fp32},
          {"bytes", machine.bytes},
          {"link", machine.linkName},
          {"linkBytes", machine.link.bytes},
          {"linkLatency", machine.link.latency}};
}

static const char *nameOf(artifact::Arithmetic arithmetic) {
  switch (arithmetic) {
  case artifact::Arithmetic::fp32:
    return "fp32";
  case artifact::Arithmetic::tf32:
    return "tf32";
  case artifact::Arithmetic::bf16:
    return "bf16";
  }
  return "";
}

static Json kernelsJson(const ReportInput &input,
                        const artifact::DeviceCode &code,
                        const artifact::Program &program) {
  Json list = Json::array();
  for (const artifact::KernelRow &row : artifact::kernelRows(code, program)) {
    const artifact::Kernel &kernel = *row.kernel;
    Json entry = {{"name", toView(kernel.name())},
                  {"fused", toView(kernel.summary())},
                  {"launches", row.launches},
                  {"flops", row.flops},
                  {"bytes", row.bytes},
                  {"arithmetic", nameOf(artifact::arithmeticOf(kernel))},
                  {"atBest", input.clock.atBest(kernel, row.flops, row.bytes)}};
    if (auto seconds = input.clock.measuredSeconds(kernel))
      entry["measured"] = *seconds;
    if (const artifact::GpuKernel *gpu = kernel.gpu())
      entry["gpu"] = {
          {"threads", gpu->threads()},
          {"registers", gpu->registers()},
          {"shared", gpu->shared_bytes() + gpu->static_shared_bytes()},
          {"spilled", gpu->spill_bytes()},
          {"mma", gpu->hmma() + gpu->hgmma()}};
    list.push_back(std::move(entry));
  }
  return list;
}

static Json collectivesJson(const artifact::Artifact &root,
                            const artifact::Program &program) {
  Json list = Json::array();
  for (const artifact::CollectiveRow &row :
       artifact::collectiveRows(root, program)) {
    Json axes = Json::array();
    for (const std::uint32_t axis : *row.first->axes())
      axes.push_back(toView(root.mesh()->Get(axis)->name()));
    list.push_back(
        {{"kind", artifact::EnumNameCollectiveKind(row.first->kind())},
         {"type", artifact::EnumNameElementType(row.first->type())},
         {"axes", std::move(axes)},
         {"members", row.members},
         {"runs", row.runs},
         {"bytes", row.bytes},
         {"sent", row.sent},
         {"started", row.first->ticket() != 0},
         {"launches", row.launches}});
  }
  return list;
}

static Json programJson(const ReportInput &input, const std::string &name) {
  Json shares = Json::array();
  for (const artifact::Share *share : *input.root.shares()) {
    if (shares.size() == kMostShares)
      break;
    const artifact::DeviceCode &code = deviceOf(input, *share);
    const artifact::Program *program = artifact::findProgram(code, name);
    if (!program)
      continue;
    shares.push_back(
        {{"ranks", ranksOf(*share)},
         {"steps", stepsJson(code, stepsOf(input, code, *program))},
         {"kernels", kernelsJson(input, code, *program)},
         {"memory", memoryJson(*share, *program)},
         {"collectives", collectivesJson(input.root, *program)}});
  }
  const artifact::Program *first = artifact::findProgram(
      deviceOf(input, *input.root.shares()->Get(0)), name);
  Json json = {{"name", name},
               {"modelFlops", first->model_flops()},
               {"layers", layersJson(layerRows(input, name))},
               {"shares", std::move(shares)}};
  if (auto timeline = simulate(input, name); timeline.ok()) {
    if (timeline->lanes.size() > kMostShares)
      timeline->lanes.resize(kMostShares);
    json["timeline"] = timelineJson(*timeline);
  } else {
    json["noTimeline"] = timeline.message();
  }
  return json;
}

static Json factsJson(const ReportInput &input) {
  const artifact::Artifact &root = input.root;
  std::vector<std::string> kinds;
  for (const artifact::DeviceCode *code : *root.shares()->Get(0)->devices())
    kinds.emplace_back(toView(code->device()));
  return {{"mesh", root.mesh() ? artifact::meshText(root) : "1 rank"},
          {"device", input.device},
          {"devices", kinds},
          {"shares", root.shares()->size()},
          {"compiler", toView(root.compiler_version())},
          {"program", toView(root.program_hash())},
          {"made by", toView(root.rebuild_command())}};
}

StatusOr<Json> programReport(const ReportInput &input, const std::string &title,
                             const std::vector<IrPhase> &phases) {
  auto schedule = scheduleOf(input.root);
  if (!schedule.ok())
    return schedule.status();
  Json json = {{"kind", "program"},
               {"title", title},
               {"facts", factsJson(input)},
               {"machine", machineJson(input.clock.machine())},
               {"recipe", toView(input.root.recipe())},
               {"config", toView(input.root.model_config())}};
  Json programs = Json::array();
  const artifact::Share &share = *input.root.shares()->Get(0);
  for (const artifact::Program *program : *deviceOf(input, share).programs())
    programs.push_back(
        programJson(input, std::string(toView(program->name()))));
  json["programs"] = std::move(programs);
  if (*schedule)
    json["schedule"] = scheduleJson(**schedule, "GFLOP of a rank", 1);
  json["sharding"] = shardingJson(input.root);
  if (!phases.empty())
    json["ir"] = phasesJson(phases);
  return json;
}

} // namespace tessera::report
