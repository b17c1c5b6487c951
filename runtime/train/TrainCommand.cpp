#include "runtime/train/TrainCommand.h"
#include "hardware/Gpus.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/TrainingPrograms.h"
#include "runtime/support/CommandLine.h"
#include "runtime/support/PeakFlops.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"
#include "runtime/train/Ranks.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/train/SeparateSteps.h"
#include "runtime/train/SessionModel.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include <CLI/CLI.hpp>

namespace tessera {
namespace {

/// Events of a profile's trace: some hundred steps of a small model.
constexpr std::size_t kTraceEvents = std::size_t(1) << 18;

// CLI::NonNegativeNumber answers with the largest double in full.
std::string checkNatural(const std::string &text) {
  const bool isNatural =
      !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  return isNatural ? "" : "must be a number that is not negative, got " + text;
}

void addOptions(CLI::App &app, TrainOptions &options) {
  app.add_option("--data", options.data,
                 "Token directory made by tessera data tokenize, with train/ "
                 "and eval/, or rows made by tessera data chat (default: the "
                 "recipe's data.train)")
      ->type_name("DIR");
  app.add_option("--eval-data", options.evalData,
                 "Held-out split (default: eval/ in the token directory)")
      ->type_name("DIR");
  app.add_option("--steps", options.steps,
                 "Last step, counted from the run's beginning (default: the "
                 "recipe's lr_schedule.total)")
      ->check(checkNatural);
  app.add_option("--out", options.out, "Run directory")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_flag("--resume", options.resume,
               "Continue from the newest intact checkpoint in --out; without "
               "one, start there");
  app.add_option("--init-from", options.initFrom,
                 "Start from Hugging Face safetensors: a file or a directory; "
                 "not read where --resume finds a checkpoint")
      ->type_name("DIR");
  app.add_option("--set", options.sets,
                 "Change a key of the recipe, e.g. optimizer.lr=3e-4; may be "
                 "repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--seed", options.seed,
                 "Seed of weights, dropout and data order")
      ->check(checkNatural);
  app.add_option("--eval-every", options.evalEvery,
                 "Steps between evaluations; 0: never")
      ->check(checkNatural);
  app.add_option("--checkpoint-every", options.checkpointEvery,
                 "Steps between checkpoints; 0: only at the end")
      ->check(checkNatural);
  app.add_option("--log-every", options.logEvery,
                 "Steps between progress lines when standard error is not a "
                 "terminal")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Threads that run kernels (default: all processors)")
      ->check(checkNatural);
  app.add_option("--timeout", options.timeout,
                 "Seconds that ranks wait for one that does not come before "
                 "all are ended")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "Where to run: cpu; cuda:0 and so on, a GPU; cuda, the first "
                 "one, or of several ranks each its own; cuda-emu, the "
                 "kernels for CUDA executed on the host, very slow; null "
                 "checks all plans, computes and writes nothing")
      ->type_name("NAME")
      ->check([](const std::string &name) {
        return hal::checkDeviceName(name).message();
      })
      ->capture_default_str();
  app.add_option("--profile", options.profile,
                 "Write a Chrome trace of the kernels, which Perfetto opens, "
                 "and print a table")
      ->type_name("FILE");
  app.add_flag("--check-finite", options.checkFinite,
               "After every kernel, look for NaN and infinity in what it "
               "wrote, and stop at the first; slow");
  app.add_flag("--json", options.json,
               "Print every metrics record on standard output");
  app.add_flag("--dump-metrics", options.dumpMetrics,
               "Print loss, gradient norm and rate of every step as "
               "hexadecimal floats on standard output");
  app.add_flag("--quiet", options.quiet, "Print nothing but errors");
}

StatusOr<std::unique_ptr<SessionModel>>
openModel(const std::string &path, const TrainOptions &options,
          const hal::MeshContext &mesh = {}) {
  hal::SessionOptions session;
  session.mesh = mesh;
  session.device = options.device;
  session.deviceOptions.threads = options.threads;
  // What ranks compute alike must be the same bits on all of them, but which
  // kernel is faster each GPU would find out for itself.
  if (mesh.world && !std::getenv("TESSERA_TUNE"))
    session.deviceOptions.tune = "off";
  session.recordOptions.profile = !options.profile.empty();
  session.recordOptions.checkFinite = options.checkFinite;
  session.recordOptions.traceEvents =
      options.profile.empty() ? 0 : kTraceEvents;
  StatusOr<ArtifactReader> reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  if (reader->hasProgram(kForwardBackward))
    return Status::error("'{}' has separate programs for gradients and update, "
                         "which tessera serve --train compiles and runs; "
                         "compile it with optimizer.update: joined",
                         path);
  for (const char *needed : {"init", "train_step"})
    if (!reader->hasProgram(needed))
      return Status::error("'{}' has no program '{}', so it cannot train; "
                           "compile it with --mode train",
                           path, needed);
  // Generation runs from the run directory: its program needs no memory here.
  for (std::string_view wanted : artifact::kTrainingPrograms)
    if (reader->hasProgram(std::string(wanted)))
      session.programs.emplace_back(wanted);
  return SessionModel::open(*reader, session);
}

Status writeProfile(const hal::Session &session, const std::string &path) {
  std::vector<const hal::Profile *> profiles = session.profiles();
  for (const hal::Profile *profile : profiles)
    fmt::print(stderr, "{}\n", profile->table());
  namespace fs = std::filesystem;
  fs::path file(path);
  std::string folder =
      file.has_parent_path() ? file.parent_path().string() : ".";
  return replaceFile(systemFiles(), folder, file.filename().string(),
                     hal::chromeTrace(profiles));
}

// Runs every program once on the null device, which walks its plan.
Status checkPlan(hal::Session &session, bool quiet) {
  std::string checked;
  for (const char *program : {"init", "train_step", "eval_step"}) {
    if (!session.hasProgram(program))
      continue;
    TESSERA_RETURN_IF_ERROR(session.run(program));
    checked.append(checked.empty() ? "" : ", ").append(program);
  }
  if (!quiet)
    fmt::print(stderr,
               "the plan of {} for {} is valid: no reads of unwritten bytes, "
               "no races between instances\n",
               checked, artifact::toView(session.code().device()));
  return Status::success();
}

// The plans of all kinds of devices.
Status checkPlans(const std::string &path, TrainOptions options) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  for (const artifact::DeviceCode *code : *reader->share().devices()) {
    options.device = "null:" + code->device()->str();
    auto model = openModel(path, options);
    if (!model.ok())
      return model.status();
    TESSERA_RETURN_IF_ERROR(checkPlan((*model)->get(), options.quiet));
  }
  return Status::success();
}

/// Says what runs the kernels. 100 % MFU is the peak of a GPU by its data
/// sheet, in the arithmetic that the recipe allows, and on a CPU a measured
/// one.
Status describeDevice(SessionModel &model, int ranks, TrainOptions &options) {
  hal::Session &session = model.get();
  options.ranks = ranks;
  StatusOr<RunRecipe> recipe = parseRunRecipe(model.facts().recipe);
  if (!recipe.ok())
    return recipe.status();
  const bool isBf16 = recipe->values.compute == recipe::Precision::Bf16;
  if (session.device().name() != "cpu") {
    const std::string device = session.device().describe();
    const hardware::Chip *chip = hardware::findChip(device);
    if (chip)
      options.peakFlops =
          (isBf16 ? chip->peaks.bf16 : chip->peaks.tf32) * ranks;
    if (!options.quiet)
      fmt::print(stderr, "device: {}, code for {}{}\n", device,
                 session.target(),
                 chip ? fmt::format("; peak {}FLOP/s of {}",
                                    shortNumber(options.peakFlops / ranks),
                                    isBf16 ? "bf16" : "tf32")
                      : std::string());
    return Status::success();
  }
  unsigned threads = options.threads
                         ? options.threads
                         : std::max(std::thread::hardware_concurrency(), 1u);
  PeakFlops peak =
      measureFastestPeak(isBf16 ? PeakType::bf16 : PeakType::fp32, threads);
  options.peakFlops = peak.perSecond * ranks;
  if (!options.quiet)
    fmt::print(stderr, "device: {}; peak {}FLOP/s of {} on {} threads{}\n",
               session.device().describe(), shortNumber(peak.perSecond),
               peak.instruction, threads,
               ranks > 1 ? fmt::format(" of each of {} ranks", ranks) : "");
  return Status::success();
}

// Ranks of one machine share its processors.
StatusOr<TrainSummary> trainInWorld(const std::string &path,
                                    const comm::Launch &launch,
                                    comm::World &world, TrainOptions options) {
  // What MPI or sockets take is there by now.
  if (StatusOr<ProcessMemory> memory = readProcessMemory(); memory.ok())
    options.baseBytes = memory->residentBytes;
  hal::MeshContext mesh;
  mesh.rank = static_cast<std::uint32_t>(launch.rank);
  mesh.world = &world;
  mesh.firstChannel = 1;        // MeshModel has the channel of all ranks
  if (options.device == "cuda") // each of a machine's ranks has one of its GPUs
    options.device = fmt::format("cuda:{}", launch.localRank);
  auto share = openModel(path, options, mesh);
  if (!share.ok())
    return share.status();
  options.program = path;
  if (launch.rank == 0)
    TESSERA_RETURN_IF_ERROR(describeDevice(**share, launch.size, options));
  auto model = MeshModel::create(share.take(), world);
  if (!model.ok())
    return model.status();
  StatusOr<TrainSummary> summary =
      runTrainingOnRanks(**model, launch, std::move(options));
  if (!summary.ok())
    return summary.status();
  TESSERA_RETURN_IF_ERROR(world.leave());
  return summary;
}

Status trainOnRanks(const std::string &path, const comm::Launch &launch,
                    TrainOptions options) {
  if (!options.profile.empty())
    return Status::error("--profile is for one rank; leave it out under "
                         "mpirun");
  if (options.threads == 0)
    options.threads = threadsPerRank(launch);
  comm::WorldOptions worldOptions;
  worldOptions.timeout = std::chrono::seconds(options.timeout);
  auto world = comm::World::join(launch, worldOptions);
  if (!world.ok())
    return world.status();
  auto summary = trainInWorld(path, launch, **world, std::move(options));
  // Destroying a world that was not left ends the process.
  if (!summary.ok())
    fmt::print(stderr, "error: rank {}: {}\n", launch.rank, summary.message());
  // A failure is an outcome of all ranks, which one of them reports.
  return summary.ok() && launch.rank != 0 ? Status::success()
                                          : outcomeOf(summary);
}

Status train(const std::string &path, TrainOptions options) {
  TESSERA_RETURN_IF_ERROR(catchStopSignals());
  if (StatusOr<ProcessMemory> memory = readProcessMemory(); memory.ok())
    options.baseBytes = memory->residentBytes;
  if (options.device == "null")
    return checkPlans(path, options);
  StatusOr<comm::Launch> launch = comm::readLaunch();
  if (!launch.ok())
    return launch.status();
  TESSERA_RETURN_IF_ERROR(checkLaunch(*launch, path));
  if (launch->size > 1)
    return trainOnRanks(path, *launch, std::move(options));
  auto model = openModel(path, options);
  if (!model.ok())
    return model.status();
  options.program = path;
  TESSERA_RETURN_IF_ERROR(describeDevice(**model, 1, options));
  StatusOr<TrainSummary> summary = runTraining(**model, options);
  // A profile of a run that failed is still worth reading.
  if (!options.profile.empty())
    if (Status status = writeProfile((*model)->get(), options.profile);
        !status.ok() && outcomeOf(summary).ok())
      return status;
  return outcomeOf(summary);
}

} // namespace

TrainCommandLine parseTrainCommand(int argc, const char *const *argv) {
  TrainCommandLine parsed;
  CLI::App app("Trains the model that is compiled into this program.");
  app.failure_message([](const CLI::App *app, const CLI::Error &error) {
    return fmt::format("error: {}; see --help\n",
                       commandLineError(*app, error));
  });
  addOptions(app, parsed.options);
  try {
    parseCommandLine(app, argc, argv);
  } catch (const CLI::ParseError &error) {
    std::ostringstream out, errors;
    int code = app.exit(error, out, errors);
    parsed.exitCode = code == 0 ? 0 : 2;
    parsed.message = out.str() + errors.str();
  }
  return parsed;
}

int trainMain(int argc, const char *const *argv,
              const std::string &artifactPath) {
  TrainCommandLine parsed = parseTrainCommand(argc, argv);
  if (parsed.exitCode) {
    std::fputs(parsed.message.c_str(), *parsed.exitCode ? stderr : stdout);
    return *parsed.exitCode;
  }
  Status status = train(artifactPath, std::move(parsed.options));
  if (!status.ok())
    fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}

} // namespace tessera
