// tessera inspect: prints the contents of an artifact, or draws a report.
#include "compiler/report/ProgramReport.h"
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/CollectiveTable.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/KernelTable.h"
#include "runtime/artifact/Validate.h"
#include "runtime/generate/PackagedModel.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/InspectMesh.h"
#include "tools/tessera/InspectReport.h"
#include "tools/tessera/InspectSass.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <vector>

using namespace tessera;
using artifact::toView;

namespace {

struct InspectOptions {
  std::string path, device, program, show;
  std::string svg;
  bool kernels = false, mesh = false, sass = false;
  ReportFiles report;
};

} // namespace

static std::string targetsOf(const artifact::DeviceCode &code) {
  std::vector<std::string_view>
      targets; // several objects may have the same target
  for (const artifact::CodeObject *object : *code.code())
    if (std::find(targets.begin(), targets.end(), toView(object->target())) ==
        targets.end())
      targets.push_back(toView(object->target()));
  return fmt::format("{}", fmt::join(targets, ", "));
}

static void printShare(const artifact::Share &share) {
  fmt::print("state {:.1f} MB in {} tensors\n",
             static_cast<double>(share.state_bytes()) / 1e6,
             share.state()->size());
  for (const artifact::DeviceCode *code : *share.devices()) {
    fmt::print("{}: {} kernels, code for {}\n", toView(code->device()),
               code->kernels()->size(), targetsOf(*code));
    for (const artifact::Program *program : *code->programs())
      fmt::print("  {}: arena {:.1f} MB, io {:.3f} MB\n",
                 toView(program->name()),
                 static_cast<double>(program->arena_bytes()) / 1e6,
                 static_cast<double>(program->io_bytes()) / 1e6);
  }
}

static void printSummary(const artifact::Artifact &root) {
  fmt::print("compiler {}, program {}\n", toView(root.compiler_version()),
             toView(root.program_hash()));
  if (root.mesh())
    fmt::print("mesh {}; --mesh shows shards, collectives and stages\n",
               artifact::meshText(root));
  for (const artifact::Share *share : *root.shares()) {
    if (root.shares()->size() > 1)
      fmt::print("{}: ", report::ranksOf(*share));
    printShare(*share);
  }
  fmt::print("made by: {}\n", toView(root.rebuild_command()));
}

// The requested kind; by default the first GPU, which has the most details.
static StatusOr<const artifact::DeviceCode *>
chooseDevice(const ArtifactReader &reader, const std::string &wanted) {
  const auto &devices = *reader.share().devices();
  if (!wanted.empty()) {
    if (const artifact::DeviceCode *code = reader.device(wanted))
      return code;
    return Status::error("{}: no code for '{}'; it has code for {}",
                         reader.path(), wanted, reader.deviceKinds());
  }
  for (const artifact::DeviceCode *code : devices)
    if (toView(code->device()).starts_with(artifact::kCudaPrefix))
      return code;
  return devices.Get(0);
}

// The program that the artifact is for, unless one was chosen.
static StatusOr<const artifact::Program *>
chooseProgram(const ArtifactReader &reader, const artifact::DeviceCode &code,
              std::string name) {
  if (name.empty())
    name = reader.hasProgram("train_step") ? "train_step" : "decode_1";
  if (const artifact::Program *program = artifact::findProgram(code, name))
    return program;
  return Status::error("{}: no program '{}'; choose with --program: {}",
                       reader.path(), name, reader.programNames());
}

static Status showKernel(const ArtifactReader &reader,
                         const artifact::DeviceCode &code,
                         const InspectOptions &options) {
  const std::string &name = options.show;
  const artifact::Kernel *kernel = artifact::findKernel(code, name);
  if (!kernel)
    return Status::error("{}: no kernel '{}' for {}; --kernels lists them",
                         reader.path(), name, toView(code.device()));
  if (!kernel->gpu() || !kernel->gpu()->source())
    return Status::error("{}: kernels for {} have no source; choose another "
                         "device with --device=KIND: {}",
                         reader.path(), toView(code.device()),
                         reader.deviceKinds());
  if (options.sass) {
    auto program = chooseProgram(reader, code, options.program);
    if (!program.ok())
      return program.status();
    std::uint32_t number = 0;
    while (code.kernels()->Get(number) != kernel)
      ++number;
    return showSass(code, **program, number);
  }
  fmt::print("{}", toView(kernel->gpu()->source()));
  return Status::success();
}

static Status printKernels(const ArtifactReader &reader,
                           const artifact::DeviceCode &code,
                           const std::string &name) {
  auto program = chooseProgram(reader, code, name);
  if (!program.ok())
    return program.status();
  if (!toView(code.device()).starts_with(artifact::kCudaPrefix)) {
    fmt::print("{}", artifact::kernelTable(code, **program));
    return Status::success();
  }
  auto latency = latencyTable(code, **program);
  if (latency.ok())
    fmt::print("{}{}", artifact::kernelTable(code, **program, latency->columns),
               latency->after);
  else
    fmt::print("{}no latency bounds: {}\n",
               artifact::kernelTable(code, **program), latency.message());
  return Status::success();
}

// Prints the contents of a packaged model in addition to the programs.
static Status printPackaged(const std::string &path) {
  auto packaged = PackagedModel::open(path);
  if (!packaged.ok())
    return packaged.status();
  fmt::print("weights {:.1f} MB, {}\n",
             static_cast<double>(packaged->weightBytes()) / 1e6,
             fmt::join(packaged->files().names(), ", "));
  return Status::success();
}

static Status inspect(const InspectOptions &options) {
  if (options.report.any() && std::filesystem::is_directory(options.path))
    return writeRunReport(options.path, options.report);
  StatusOr<ArtifactReader> reader = ArtifactReader::open(options.path);
  if (!reader.ok())
    return reader.status();
  const bool predicts = !options.report.cluster.empty();
  if (options.report.any() || predicts) {
    auto code = chooseDevice(*reader, options.device);
    if (!code.ok())
      return code.status();
    const std::string device(toView((*code)->device()));
    if (options.report.any())
      TESSERA_RETURN_IF_ERROR(writeReport(*reader, device, options.report));
    if (predicts && !options.report.any() && !reader->hasProgram("train_step"))
      return Status::error("--cluster {}: {} has no train_step, whose time "
                           "could be predicted; add --html or --trace",
                           options.report.cluster, options.path);
    if (predicts && reader->hasProgram("train_step"))
      TESSERA_RETURN_IF_ERROR(printStepTime(*reader, device, options.report));
  }
  if (options.mesh)
    return inspectMesh(*reader, options.svg);
  if ((options.report.any() || predicts) && !options.kernels &&
      options.show.empty())
    return Status::success();
  if (!options.kernels && options.show.empty()) {
    printSummary(reader->root());
    return PackagedModel::isOne(options.path) ? printPackaged(options.path)
                                              : Status::success();
  }
  auto code = chooseDevice(*reader, options.device);
  if (!code.ok())
    return code.status();
  return options.show.empty() ? printKernels(*reader, **code, options.program)
                              : showKernel(*reader, **code, options);
}

static void addReportOptions(CLI::App &command, ReportFiles &files) {
  CLI::Option *html =
      command
          .add_option("--html", files.html,
                      "write a report as one HTML page: layers, kernels, "
                      "memory, timeline, shards; of a run: its metrics")
          ->type_name("FILE");
  command
      .add_option("--trace", files.trace,
                  "write the estimated timeline of all programs as a Chrome "
                  "trace, which Perfetto opens")
      ->type_name("FILE");
  command
      .add_option("--tensorboard", files.tensorboard,
                  "of a run: write its metrics as a TensorBoard event file "
                  "into this directory")
      ->type_name("DIR");
  command
      .add_option("--ir", files.ir,
                  "directory of --dump-ir: the page shows each phase and what "
                  "it changed")
      ->needs(html)
      ->type_name("DIR");
  CLI::Option *bench =
      command
          .add_option("--bench", files.bench,
                      "kernel times of tessera bench kernels --json FILE, "
                      "instead of estimates")
          ->type_name("FILE");
  command
      .add_option(
          "--cluster", files.cluster,
          "cluster file: print the time of a training step on it, and "
          "estimate for its devices (default: an H200 or, for sm_80, an "
          "A100; CPU kernels: this machine, measured)")
      ->excludes(bench)
      ->type_name("FILE");
}

void tessera::addInspectCommand(CLI::App &app, Invocation &invocation) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App *command = app.add_subcommand(
      "inspect", "Print the contents of an artifact or training executable, or "
                 "draw a report");
  command
      ->add_option(
          "ARTIFACT", options->path,
          "output of tessera compile; with --html or --tensorboard also a "
          "run directory")
      ->type_name("")
      ->required();
  command->add_flag("--kernels", options->kernels,
                    "print a table of kernels: FLOPs, bytes and roofline bound "
                    "of each launch; threads, registers and shared memory of a "
                    "block; spilled bytes; tensor-core instructions; with "
                    "nvdisasm also a bound by latency");
  CLI::Option *mesh = command->add_flag(
      "--mesh", options->mesh,
      "print how tensors are sharded over the ranks, the collectives of each "
      "group of ranks, and the pipeline schedule");
  command
      ->add_option("--svg", options->svg,
                   "draw the pipeline schedule of a step into this SVG file")
      ->needs(mesh)
      ->type_name("FILE");
  addReportOptions(*command, options->report);
  CLI::Option *show = command
                          ->add_option("--show", options->show,
                                       "print the CUDA source of this kernel")
                          ->type_name("NAME");
  command
      ->add_flag("--sass", options->sass,
                 "print its machine code instead, and what its loops wait for "
                 "(needs nvdisasm)")
      ->needs(show);
  command
      ->add_option(
          "--device", options->device,
          "device kind whose kernels are printed (default: the first GPU)")
      ->type_name("KIND");
  command
      ->add_option(
          "--program", options->program,
          "program whose kernels are printed (default: train_step or decode_1)")
      ->type_name("NAME");
  command->callback([=, &invocation] {
    if (Status status = inspect(*options); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
