// tessera: the one command a user types.
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <cstdio>

void tessera::Invocation::fail(const char *message) {
  std::fprintf(stderr, "tessera: %s\n", message);
  exitCode = 1;
}

int main(int argc, char **argv) {
  CLI::App app{"Compiles a model spec into an executable that trains it, and "
               "what goes with that.",
               "tessera"};
  app.footer(R"(
From text to a model that writes some:
  tessera data tokenizer --input corpus/train --vocab 4096 -o tokenizer.json
  tessera data tokenize --tokenizer tokenizer.json --input corpus/train --eval-input corpus/eval -o tokens
  tessera compile models/specs/gpt2-demo --recipe recipes/demo.yaml -o train_demo
  ./train_demo --data tokens --out run
  tessera generate run --prompt "The command"

SUBCOMMAND --help says more of each.)");
  app.require_subcommand(1);
  app.set_version_flag("--version", TESSERA_VERSION);
  app.failure_message([](const CLI::App *, const CLI::Error &error) {
    return std::string("tessera: ") + error.what() + "; see tessera --help\n";
  });

  tessera::Invocation invocation;
  tessera::addCompileCommand(app, invocation);
  tessera::addGenerateCommand(app, invocation);
  tessera::addDataCommand(app, invocation);
  tessera::addBenchCommand(app, invocation);
  tessera::addInspectCommand(app, invocation);
  tessera::addDoctorCommand(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    // CLI11 has a code for each kind of error; as a training executable, we
    // have one for all.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return invocation.exitCode;
}
