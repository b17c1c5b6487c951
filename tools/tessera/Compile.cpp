// tessera compile: a model spec and a recipe become an executable.
#include "compiler/Driver.h"
#include "compiler/Phases.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

static std::string phaseNames() {
  std::string names;
  for (const Phase &phase : phases())
    names += (names.empty() ? "" : ", ") + phase.name.str();
  return names;
}

// The runtime that becomes the executable stands beside this program.
static std::string besideThisProgram(const char *name) {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

static std::string joinCommandLine(int argc, char **argv) {
  std::string line = "tessera";
  for (int i = 1; i < argc; ++i)
    line += std::string(" ") + argv[i];
  return line;
}

static void runCompile(const CompileRequest &request, Invocation &invocation) {
  llvm::Expected<CompileSummary> summary = compile(request);
  if (!summary)
    return invocation.fail(llvm::toString(summary.takeError()).c_str());
  if (request.to.empty())
    fmt::print(stderr, "{}: {:.1f} MB in {:.2f} s{}\n", request.output,
               summary->artifactBytes / 1e6, summary->seconds,
               summary->fromCache ? " (from cache)" : "");
}

void tessera::addCompileCommand(CLI::App &app, Invocation &invocation, int argc,
                                char **argv) {
  auto request = std::make_shared<CompileRequest>();
  auto mode = std::make_shared<std::string>("train");
  CLI::App *command = app.add_subcommand(
      "compile", "Compile a model spec into a training executable");
  command->add_option("SPEC", request->spec,
                      "directory with config.json, or the file itself");
  command
      ->add_option("--mode", *mode,
                   "what to build: train (an executable) or artifact (the bare "
                   ".tsr file)")
      ->check(CLI::IsMember({"train", "artifact"}))
      ->capture_default_str();
  command->add_option("--recipe", request->recipe,
                      "recipe.yaml; every key has a default");
  command
      ->add_option("--set", request->set,
                   "override a recipe key: --set batch.sequence=512")
      ->take_all();
  command->add_option("-o,--output", request->output, "file to write");
  command
      ->add_option(
          "--target", request->targets,
          "cpu (all its variants), cpu:avx512bf16, cpu:avx512, cpu:avx2")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--dump-ir", request->dumpDir,
                      "write one .mlir file a phase into this directory");
  command->add_flag(
      "--dump-passes", request->dumpPasses,
      "also print the module to stderr after every pass that changed it");
  command->add_option("--from", request->from,
                      "SPEC is a dumped .mlir file; go on after this phase: " +
                          phaseNames());
  command->add_option(
      "--to", request->to,
      "stop after this phase and write its IR to --output (or stdout)");
  command
      ->add_option("--cache", request->cache,
                   "on, off, redo or readonly ($XDG_CACHE_HOME/tessera)")
      ->capture_default_str();
  command->add_flag("--embed-sources", request->embedSources,
                    "keep the IR of every phase in the artifact");
  command->add_flag("--timing", request->timing,
                    "print the time of each phase to stderr");
  command->callback([=, &invocation] {
    request->executable = *mode == "train";
    request->runtime = besideThisProgram("tessera-run");
    request->commandLine = joinCommandLine(argc, argv);
    if (request->spec.empty())
      return invocation.fail(
          "compile needs a SPEC: a directory with config.json");
    if (!request->from.empty())
      std::swap(request->input, request->spec);
    if (request->output.empty() && request->to.empty())
      return invocation.fail("compile needs -o FILE");
    runCompile(*request, invocation);
  });
}
