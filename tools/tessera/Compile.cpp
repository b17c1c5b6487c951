// tessera compile: compiles a model spec and a recipe into an executable.
#include "compiler/DeviceKinds.h"
#include "compiler/Driver.h"
#include "compiler/Phases.h"
#include "compiler/api/CompileInput.h"
#include "compiler/api/PackageModel.h"
#include "tools/tessera/AdapterOptions.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/Note.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

static std::string phaseNames() {
  std::string names;
  for (const Phase &phase : phases(models::Mode::Train))
    names += (names.empty() ? "" : ", ") + phase.name.str();
  return names + "; with --mode infer, inference instead of autodiff";
}

// tessera-run, which becomes the executable, is in the directory of this
// program.
static std::string nextToThisProgram(const char *name) {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

static void report(llvm::Expected<CompileSummary> summary,
                   const CompileRequest &request, Invocation &invocation,
                   std::string_view what = "") {
  if (!summary)
    return invocation.fail(llvm::toString(summary.takeError()).c_str());
  if (request.to.empty())
    fmt::print(stderr, "{}: {}{:.1f} MB in {:.2f} s{}\n", request.output, what,
               summary->artifactBytes / 1e6, summary->seconds,
               summary->fromCache ? " (from cache)" : "");
}

static void runCompile(const CompileRequest &request, Invocation &invocation,
                       std::string_view what = "") {
  report(compile(request), request, invocation, what);
}

static double sizeOf(const std::string &path) {
  std::error_code moved; // the file may have been moved
  const auto bytes = std::filesystem::file_size(path, moved);
  return moved ? 0 : double(bytes) / 1e6;
}

// Inference programs, packaged with the weights if the directory has them.
static void runInfer(CompileRequest request, bool leavesWeights,
                     Invocation &invocation) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  constexpr std::string_view alone = "programs without weights, ";
  if (PackagedModel::isOne(request.spec))
    return invocation.fail(
        fmt::format("'{}' is compiled already; pass it to tessera serve",
                    request.spec)
            .c_str());
  auto source = findWeights(request.spec);
  if (!source.ok())
    return invocation.fail(source.message().c_str());
  if (!*source)
    return leavesWeights
               ? invocation.fail(
                     "--no-weights: there are none (no model.safetensors, no "
                     "model.safetensors.index.json)")
               : runCompile(request, invocation, alone);
  const models::ModelSpec &spec = (*source)->spec;
  if (llvm::Error error = setModel(request, (*source)->files))
    return invocation.fail(llvm::toString(std::move(error)).c_str());
  const bool forCpus =
      std::ranges::all_of(request.chosenTargets(),
                          [](auto &each) { return each.starts_with("cpu"); });
  // Packed weights help decode. An encoder or a reward model reads its
  // weights once for many tokens.
  const auto defaults =
      modelDefaults(spec, request.recipe.empty(),
                    forCpus && spec.generates() && request.mesh.empty());
  request.set.insert(request.set.begin(), defaults.begin(), defaults.end());
  if (leavesWeights || !request.to.empty())
    return runCompile(request, invocation, alone);
  if (!request.mesh.empty())
    return invocation.fail("--mesh: a packaged model is for one process; add "
                           "--no-weights, or give the directory and the mesh "
                           "to tessera serve or generate");
  if (const std::string &line = (*source)->note; !line.empty())
    note(line);
  auto summary = packageModel(request, **source);
  if (!summary.ok())
    return invocation.fail(summary.message().c_str());
  const std::chrono::duration<double> took = Clock::now() - begin;
  fmt::print(
      stderr,
      "{}: {:.1f} MB in {:.2f} s, of which programs {:.1f} MB in {:.2f} s{}\n",
      request.output, sizeOf(request.output), took.count(),
      double(summary->artifactBytes) / 1e6, summary->seconds,
      summary->fromCache ? " (from cache)" : "");
}

static void addIrOptions(CLI::App &command, CompileRequest &request) {
  const char *group = "Intermediate representation";
  command
      .add_option("--dump-ir", request.dumpDir,
                  "write the module after each phase: DIR/00-import.mlir, ...")
      ->type_name("DIR")
      ->group(group);
  command
      .add_flag("--dump-passes", request.dumpPasses,
                "print the module to stderr after each pass that changes it")
      ->group(group);
  command
      .add_option("--mlir", request.mlirOptions,
                  "pass an option to MLIR's pass manager, such as "
                  "--mlir=--mlir-timing or "
                  "--mlir=--mlir-print-ir-after=fuse; repeatable")
      ->type_name("OPTION")
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option(
          "--from", request.from,
          "SPEC is a file that --dump-ir wrote after PHASE; continue from it")
      ->type_name("PHASE")
      ->group(group);
  command
      .add_option("--to", request.to,
                  "stop after PHASE and write its IR to --output (default: "
                  "stdout)")
      ->type_name("PHASE")
      ->group(group);
  command
      .add_flag("--embed-sources", request.embedSources,
                "store the IR of every phase in the artifact")
      ->group(group);
  command
      .add_flag_callback(
          "--list-phases",
          [] {
            fmt::print("{}", phasesAsMarkdown());
            throw CLI::Success();
          },
          "print the phases and their passes (docs/pipeline.md) and exit")
      ->trigger_on_parse()
      ->group(group);
}

static void addMeshOptions(CLI::App &command, CompileRequest &request,
                           CompileChoice &choice) {
  command
      .add_option(
          "--mesh", request.mesh,
          "device mesh: data=2,tensor=2,zero=1 for two data-parallel "
          "groups of two, data=4,replicate=2,zero=3 for two "
          "replicas that four ranks shard, pipe=2 for two pipeline "
          "stages, tensor=4,collective_matmul=on for collective matmuls; auto: "
          "chosen by the cost model; see docs/distributed.md")
      ->type_name("AXIS=N,...");
  command
      .add_option("--world", request.world,
                  "number of devices; with --mesh auto, or without --mesh, the "
                  "cost model of `tessera plan` chooses the axes, and the "
                  "compiled program verifies that it fits")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      .add_option("--plan", choice.plan,
                  "mesh, batch, recomputation and precision of a file that "
                  "`tessera plan -o` wrote; other keys are the recipe's")
      ->type_name("FILE.yaml");
  command
      .add_option("--cluster", choice.devices.cluster,
                  "description of the machines of a mesh: costs by which "
                  "shardings and --mesh auto are chosen; examples are in "
                  "hardware/clusters")
      ->type_name("FILE");
  command
      .add_option(
          "--device-memory", choice.devices.memory,
          "for --mesh auto: memory of one device, such as 24GiB (default: an "
          "equal part of this machine's, or the cluster's)")
      ->type_name("SIZE");
}

static void addOptions(CLI::App &command, CompileRequest &request,
                       CompileChoice &choice, std::string &mode,
                       uint64_t &cacheGib) {
  command
      .add_option("SPEC", request.spec,
                  "model spec: a Hugging Face config.json, or its directory; "
                  "with --mode infer also a GGUF file")
      ->type_name("");
  command
      .add_option("--mode", mode,
                  "train: a training executable; artifact: the same as a bare "
                  ".tsr file; infer: a .tsr file of the inference programs; if "
                  "SPEC has weights, a packaged model for "
                  "tessera serve, chat, generate and embed")
      ->type_name("MODE")
      ->check(CLI::IsMember({"train", "artifact", "infer"}))
      ->capture_default_str();
  command
      .add_option(
          "--recipe", request.recipe,
          "recipe.yaml: how to train or infer (default: recipes/default.yaml)")
      ->type_name("FILE.yaml");
  command
      .add_option(
          "--set", request.set,
          "change a key of the recipe: --set batch.sequence=512; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(command, request.set);
  addKvOption(command, request.set);
  addMeshOptions(command, request, choice);
  command.add_option("-o,--output", request.output, "file to write")
      ->type_name("FILE");
  command
      .add_option("--target", request.targets,
                  "targets: any of " + acceptedTargets() +
                      " (default: $TESSERA_TARGET, or cpu)")
      ->type_name("NAME,...")
      ->delimiter(',');
  command.add_flag_callback(
      "--no-emulate", [&] { request.emulate = false; },
      "for CUDA targets, omit the kernels for --device cuda-emu, the emulated "
      "GPU");
  addCacheOptions(command, request.cache, cacheGib);
  command.add_flag("--no-weights", choice.leavesWeights,
                   "for --mode infer: write the programs without weights");
  command.add_flag("--timing", request.timing,
                   "print the time of each phase and kernel to stderr");
  addIrOptions(command, request);
}

void tessera::addCompileCommand(CLI::App &app, Invocation &invocation) {
  auto request = std::make_shared<CompileRequest>();
  auto choice = std::make_shared<CompileChoice>();
  auto mode = std::make_shared<std::string>("train");
  auto cacheGib = std::make_shared<uint64_t>(kCacheGib);
  CLI::App *command = app.add_subcommand(
      "compile", "Compile a model spec into a training executable, or a model "
                 "with weights into a packaged model for inference");
  addOptions(*command, *request, *choice, *mode, *cacheGib);
  addAdapterSlotOptions(*command, choice->adapters,
                        "with --mode infer: LoRA adapters that the programs "
                        "can hold at once (tessera serve --adapter)");
  command->footer("\nPHASE is one of " + phaseNames() + ".");
  command->callback([=, &invocation] {
    if (const char *targets = std::getenv("TESSERA_TARGET"))
      choice->defaultTargets = targets;
    request->executable = *mode == "train";
    request->infer = *mode == "infer";
    request->cacheBytes = *cacheGib << 30;
    request->warning = note;
    request->runtime = nextToThisProgram("tessera-run");
    auto question = prepareCompile(*request, *choice);
    if (!question.ok())
      return invocation.fail(question.message().c_str());
    if (*question)
      return report(compileOnAutoMesh(*request, **question,
                                      [&](const CompileRequest &chosen) {
                                        return rebuildCommand(chosen, *choice);
                                      }),
                    *request, invocation);
    request->infer && request->from.empty()
        ? runInfer(*request, choice->leavesWeights, invocation)
        : runCompile(*request, invocation);
  });
}
