#include "compiler/report/PipelineSchedule.h"

#include <algorithm>

#include "parallelism/pipeline/Check.h"
#include "runtime/artifact/ElementTypes.h"

namespace tessera::report {

using artifact::toView;
using pipeline::Timeline;

static pipeline::Costs costsOf(const artifact::Pipeline &stages) {
  pipeline::Costs costs;
  costs.stages.resize(stages.forward()->size());
  for (flatbuffers::uoffset_t i = 0; i < stages.forward()->size(); ++i) {
    pipeline::StageCost &cost = costs.stages[i];
    cost.forward = static_cast<double>(stages.forward()->Get(i)) / 1e9;
    cost.backward = static_cast<double>(stages.backward()->Get(i)) / 1e9;
    cost.backwardWeight = std::min(
        static_cast<double>(stages.weights()->Get(i)) / 1e9, cost.backward);
    cost.backwardInput = cost.backward - cost.backwardWeight;
  }
  return costs;
}

static StatusOr<Timeline> timelineOf(const artifact::Pipeline &stages) {
  Timeline timeline;
  auto schedule =
      pipeline::parseCsv(toView(stages.schedule()), "the artifact's schedule");
  if (!schedule.ok())
    return schedule.status();
  timeline.schedule = schedule.take();
  TESSERA_RETURN_IF_ERROR(pipeline::check(timeline.schedule));
  auto run = pipeline::simulate(timeline.schedule, costsOf(stages));
  if (!run.ok())
    return run.status();
  timeline.run = run.take();
  return timeline;
}

StatusOr<std::optional<Timeline>> scheduleOf(const artifact::Artifact &root) {
  if (!root.pipeline())
    return std::optional<Timeline>();
  auto last = timelineOf(*root.pipeline());
  if (!last.ok())
    return last.status();
  std::optional<Timeline> all;
  auto add = [&](Timeline next) {
    all = all ? pipeline::joined(std::move(*all), next) : std::move(next);
  };
  if (root.pipelines_before())
    for (const artifact::Pipeline *each : *root.pipelines_before()) {
      auto before = timelineOf(*each);
      if (!before.ok())
        return before.status();
      if (before->schedule.ranks != last->schedule.ranks)
        return Status::error("the artifact's schedules are for {} and {} ranks",
                             before->schedule.ranks, last->schedule.ranks);
      add(before.take());
    }
  add(last.take());
  return all;
}

Json scheduleJson(const Timeline &timeline, std::string_view unit,
                  double scale) {
  const pipeline::Schedule &schedule = timeline.schedule;
  const pipeline::Simulation &run = timeline.run;
  Json lanes = Json::array();
  for (std::size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    Json events = Json::array();
    const pipeline::InstructionList &list = schedule.lists[rank];
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (!pipeline::isCompute(list[k].op) &&
          list[k].op != pipeline::Op::OptimizerStep)
        continue;
      const pipeline::Span span = run.spans[rank][k];
      events.push_back({span.start * scale, (span.end - span.start) * scale,
                        pipeline::toString(list[k]), pipeline::name(list[k].op),
                        list[k].work.microbatch});
    }
    lanes.push_back({{"name", fmt::format("rank {}", rank)},
                     {"busy", run.ranks[rank].busy * scale},
                     {"live", run.ranks[rank].peakLive},
                     {"events", std::move(events)}});
  }
  return {{"name", schedule.name},
          {"unit", unit},
          {"stages", schedule.stages},
          {"microbatches", schedule.microbatches},
          {"makespan", run.makespan * scale},
          {"bubble", run.bubbleFraction},
          {"lanes", std::move(lanes)}};
}

} // namespace tessera::report
