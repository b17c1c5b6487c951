#include "tools/tessera/InspectMesh.h"
#include "compiler/Files.h"
#include "compiler/report/PipelineSchedule.h"
#include "compiler/report/ProgramReport.h"
#include "runtime/artifact/CollectiveTable.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/ShardingTable.h"
#include "tools/tessera/InspectReport.h"
#include <fmt/format.h>

using namespace tessera;
using artifact::toView;

static std::string collectivesText(const artifact::Artifact &root) {
  std::string text;
  for (const artifact::Share *share : *root.shares()) {
    text += fmt::format("{}: state {:.1f} MB\n", report::ranksOf(*share),
                        static_cast<double>(share->state_bytes()) / 1e6);
    for (const artifact::Program *program :
         *share->devices()->Get(0)->programs())
      text += artifact::collectiveTable(root, *program);
  }
  return text;
}

static constexpr std::string_view kTimelineNote =
    "pipeline of a step; time in GFLOP of a rank; transfers are not counted\n";

Status tessera::inspectMesh(const ArtifactReader &reader,
                            const std::string &svg) {
  const artifact::Artifact &root = reader.root();
  auto timeline = report::scheduleOf(root);
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
  if (svg.empty())
    return Status::success();
  if (!*timeline)
    return Status::error("--svg {}: {} has no pipeline to draw; compile with "
                         "--mesh pipe=N, or use --html",
                         svg, reader.path());
  return writeText(
      svg, pipeline::timelineSvg((*timeline)->schedule, (*timeline)->run));
}
