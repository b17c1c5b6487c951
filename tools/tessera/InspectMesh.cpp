#include "tools/tessera/InspectMesh.h"
#include "compiler/Files.h"
#include "parallelism/pipeline/Check.h"
#include "parallelism/pipeline/Timeline.h"
#include "runtime/artifact/CollectiveTable.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/ShardingTable.h"
#include <algorithm>
#include <fmt/format.h>
#include <optional>

using namespace tessera;
using artifact::toView;

std::string tessera::ranksOf(const artifact::Share &share) {
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

static std::string collectivesText(const artifact::Artifact &root) {
  std::string text;
  for (const artifact::Share *share : *root.shares()) {
    text += fmt::format("{}: state {:.1f} MB\n", ranksOf(*share),
                        static_cast<double>(share->state_bytes()) / 1e6);
    for (const artifact::Program *program :
         *share->devices()->Get(0)->programs())
      text += artifact::collectiveTable(root, *program);
  }
  return text;
}

using pipeline::Timeline;

// In GFLOP of a rank, so that the drawing does not depend on the machine.
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

// The timeline of all loops of a step, concatenated.
static StatusOr<std::optional<Timeline>>
timelineOf(const artifact::Artifact &root) {
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

static Status write(const std::string &path, const std::string &text) {
  if (llvm::Error error = writeFile(path, {llvm::StringRef(text)}))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

static constexpr std::string_view kTimelineNote =
    "pipeline of a step; time in GFLOP of a rank; transfers are not counted\n";

static std::string page(const std::string &title, const std::string &tables,
                        const std::optional<Timeline> &timeline) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<title>{0}</title>\n<style>\n:root {{ color-scheme: light dark; }}\n"
      "body {{ font: 14px system-ui, sans-serif; margin: 2em; }}\n"
      "pre, .scroll {{ overflow-x: auto; }}\n</style>\n<h1>{0}</h1>\n",
      pipeline::markupText(title));
  if (timeline)
    text +=
        fmt::format("<p>{}</p>\n<div class=\"scroll\">\n{}</div>\n",
                    kTimelineNote.substr(0, kTimelineNote.size() - 1),
                    pipeline::timelineSvg(timeline->schedule, timeline->run));
  return text + fmt::format("<pre>\n{}</pre>\n</html>\n",
                            pipeline::markupText(tables));
}

Status tessera::inspectMesh(const ArtifactReader &reader,
                            const MeshPictures &pictures) {
  const artifact::Artifact &root = reader.root();
  auto timeline = timelineOf(root);
  if (!timeline.ok())
    return Status::error("{}: {}; rebuild it: {}", reader.path(),
                         timeline.message(), toView(root.rebuild_command()));
  const std::string title = "mesh " + artifact::meshText(root);
  const artifact::DeviceCode &first = *root.shares()->Get(0)->devices()->Get(0);
  std::string tables;
  if (first.programs()->size() > 0)
    tables = artifact::shardingTable(root, *first.programs()->Get(0));
  tables += "\n" + collectivesText(root);
  fmt::print("{}\n{}", title, tables);
  if (*timeline)
    fmt::print("\n{}{}", kTimelineNote,
               pipeline::timelineText((*timeline)->schedule, (*timeline)->run));
  if (!pictures.svg.empty()) {
    if (!*timeline)
      return Status::error("--svg {}: {} has no pipeline to draw; compile with "
                           "--mesh pipe=N, or use --html for the tables",
                           pictures.svg, reader.path());
    TESSERA_RETURN_IF_ERROR(
        write(pictures.svg,
              pipeline::timelineSvg((*timeline)->schedule, (*timeline)->run)));
  }
  if (pictures.html.empty())
    return Status::success();
  return write(pictures.html, page(title, tables, *timeline));
}
