#include "tools/tessera/InspectReport.h"
#include "compiler/Files.h"
#include "compiler/report/EventFile.h"
#include "compiler/report/Page.h"
#include "compiler/report/ProgramReport.h"
#include "compiler/report/RunReport.h"
#include "compiler/report/SharedCores.h"
#include "compiler/report/Simulation.h"
#include "hardware/Quantity.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Validate.h"
#include "runtime/support/Text.h"
#include <filesystem>
#include <fmt/format.h>
#include <optional>

using namespace tessera;
using artifact::toView;

static constexpr int64_t kMostBenchBytes = int64_t(64) << 20;

Status tessera::writeText(const std::string &path, const std::string &text) {
  if (llvm::Error error = writeFile(path, {llvm::StringRef(text)}))
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

static StatusOr<std::optional<report::Measurements>>
readMeasurements(const std::string &path) {
  if (path.empty())
    return std::optional<report::Measurements>();
  auto text = readTextFile(path, kMostBenchBytes);
  if (!text.ok())
    return Status::error("--bench {}", text.message());
  auto read = report::parseMeasurements(*text, path);
  if (!read.ok())
    return Status::error("--bench {}", read.message());
  return std::optional(read.take());
}

// Measured, or of the given cluster, or else by the device's kind.
static StatusOr<report::Machine>
chooseMachine(const std::string &device, const ReportFiles &files,
              const std::optional<report::Measurements> &measured) {
  if (!files.cluster.empty()) {
    auto cluster = planner::loadCluster(files.cluster);
    if (!cluster.ok())
      return cluster.status();
    return report::machineOf(*cluster);
  }
  if (measured)
    return measured->machine;
  const hardware::Chip *chip = hardware::chipOfTarget(device);
  return chip ? report::machineOf(*chip) : report::measureThisMachine();
}

static Status writeTrace(const report::ReportInput &input,
                         const std::string &path) {
  std::vector<std::pair<std::string, report::ProgramTimeline>> programs;
  const artifact::Share &share = *input.root.shares()->Get(0);
  for (const artifact::Program *program :
       *report::deviceOf(input, share).programs()) {
    const std::string name(toView(program->name()));
    auto timeline = report::simulate(input, name);
    if (!timeline.ok())
      return Status::error("--trace {}: {}: {}", path, name,
                           timeline.message());
    programs.emplace_back(name, timeline.take());
  }
  return writeText(path, report::traceText(input, programs));
}

Status tessera::writeReport(const ArtifactReader &reader,
                            const std::string &device,
                            const ReportFiles &files) {
  if (!files.tensorboard.empty())
    return Status::error("--tensorboard {}: {} is an artifact; name the "
                         "directory of a run",
                         files.tensorboard, reader.path());
  auto measured = readMeasurements(files.bench);
  if (!measured.ok())
    return measured.status();
  auto machine = chooseMachine(device, files, *measured);
  if (!machine.ok())
    return machine.status();
  const report::StepClock clock(machine.take(),
                                *measured ? &**measured : nullptr);
  const report::ReportInput input{reader.root(), clock, device};
  if (!files.trace.empty())
    TESSERA_RETURN_IF_ERROR(writeTrace(input, files.trace));
  if (files.html.empty())
    return Status::success();
  std::vector<report::IrPhase> phases;
  if (!files.ir.empty()) {
    auto read = report::readPhases(files.ir);
    if (!read.ok())
      return read.status();
    phases = read.take();
  }
  const std::string title =
      std::filesystem::path(reader.path()).filename().string();
  auto json = report::programReport(input, title, phases);
  if (!json.ok())
    return Status::error("{}: {}; rebuild it: {}", reader.path(),
                         json.message(),
                         toView(reader.root().rebuild_command()));
  return writeText(files.html, report::page(title, *json));
}

Status tessera::printStepTime(const ArtifactReader &reader,
                              const std::string &device,
                              const ReportFiles &files) {
  constexpr const char *kStep = "train_step";
  auto cluster = planner::loadCluster(files.cluster);
  if (!cluster.ok())
    return cluster.status();
  if (cluster->host) {
    auto prediction =
        report::predictOnHost(reader.root(), *cluster->host, kStep);
    if (!prediction.ok())
      return Status::error("{}: {}", reader.path(), prediction.message());
    fmt::print("{}", report::printPrediction(*prediction, *cluster->host));
    return Status::success();
  }
  const report::StepClock clock(report::machineOf(*cluster), nullptr);
  auto timeline = report::simulate({reader.root(), clock, device}, kStep);
  if (!timeline.ok())
    return Status::error("{}: {}", reader.path(), timeline.message());
  fmt::print("predicted step: {} at best, by the roofline of {}\n",
             planner::formatSeconds(timeline->makespan),
             clock.machine().source);
  return Status::success();
}

Status tessera::writeRunReport(const std::string &run,
                               const ReportFiles &files) {
  if (!files.trace.empty())
    return Status::error("--trace {}: {} is a run directory; the trace of a "
                         "run is written by its executable with --profile",
                         files.trace, run);
  for (const auto &[option, value] : {std::pair("--ir", &files.ir),
                                      {"--bench", &files.bench},
                                      {"--cluster", &files.cluster}})
    if (!value->empty())
      return Status::error("{} {}: {} is a run directory; {} is read with an "
                           "executable or artifact",
                           option, *value, run, option);
  if (!files.tensorboard.empty())
    TESSERA_RETURN_IF_ERROR(report::writeEventFile(run, files.tensorboard));
  if (files.html.empty())
    return Status::success();
  auto json = report::runReport(run);
  if (!json.ok())
    return json.status();
  return writeText(files.html,
                   report::page((*json)["title"].get<std::string>(), *json));
}
