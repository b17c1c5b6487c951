// tessera: the command line of the compiler and runtime.
#include "runtime/support/CommandLine.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/Environment.h"
#include "llvm/Support/raw_ostream.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <system_error>

void tessera::Invocation::fail(const char *message) {
  std::fprintf(stderr, "tessera: %s\n", message);
  exitCode = 1;
}

// CLI11 reports a missing subcommand before it checks for unknown words.
static std::string explain(const CLI::App *app, const CLI::Error &error,
                           tessera::Words words) {
  std::string typed = "tessera";
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    typed += " " + app->get_name();
  }
  if (error.get_exit_code() == int(CLI::ExitCodes::ExtrasError))
    return fmt::format("{}; see {} --help",
                       tessera::commandLineError(*app, error), typed);
  std::vector<const CLI::App *> known =
      app->get_subcommands([](const CLI::App *) { return true; });
  if (error.get_name() != "RequiredError" || known.empty())
    return fmt::format("{}{}; see {} --help",
                       tessera::environmentOf(*app, error, words), error.what(),
                       typed);
  std::vector<std::string_view> names;
  for (const CLI::App *subcommand : known)
    names.push_back(subcommand->get_name());
  std::vector<std::string> left = app->remaining();
  if (left.empty())
    return fmt::format("a subcommand is required: {}; see {} --help",
                       tessera::choices(names), typed);
  bool isOption = left.front().starts_with('-');
  return fmt::format("unknown {} {}; expected one of {}; see {} --help",
                     isOption ? "option" : "subcommand",
                     tessera::quote(left.front()), tessera::choices(names),
                     typed);
}

// The error of writing stdout; empty if all output was written.
static std::string outputError() {
  const std::string failed = "stdout: writing failed";
  std::string message;
  if (std::fflush(stdout) != 0)
    message = fmt::format("{}: {}", failed, std::strerror(errno));
  else if (std::ferror(stdout)) // an earlier write
    message = failed;
  llvm::outs().flush();
  if (llvm::outs().has_error()) {
    message = fmt::format("{}: {}", failed, llvm::outs().error().message());
    llvm::outs().clear_error(); // or LLVM aborts when it is destroyed
  }
  return message;
}

int main(int argc, char **argv) {
  CLI::App app{"Compiles a model spec into a training executable or inference "
               "programs; also generates, chats, serves, embeds, scores, "
               "reinforces, evaluates, quantizes, imports, exports, benchmarks "
               "and plans.",
               "tessera"};
  app.require_subcommand(1);
  app.set_version_flag("--version", TESSERA_VERSION);
  tessera::Invocation invocation;
  invocation.words.assign(argv + std::min(argc, 1), argv + argc);
  app.failure_message([&](const CLI::App *app, const CLI::Error &error) {
    return "tessera: " + explain(app, error, invocation.words) + "\n";
  });

  tessera::addCompileCommand(app, invocation);
  tessera::addGenerateCommand(app, invocation);
  tessera::addEvalCommand(app, invocation);
  tessera::addRlCommand(app, invocation);
  tessera::addRolloutWorkerCommand(app, invocation);
  tessera::addQuantizeCommand(app, invocation);
  tessera::addChatCommand(app, invocation);
  tessera::addServeCommand(app, invocation);
  tessera::addEmbedCommand(app, invocation);
  tessera::addRerankCommand(app, invocation);
  tessera::addScoreCommand(app, invocation);
  tessera::addDataCommand(app, invocation);
  tessera::addBenchCommand(app, invocation);
  tessera::addPlanCommand(app, invocation);
  tessera::addImportCommand(app, invocation);
  tessera::addExportCommand(app, invocation);
  tessera::addInspectCommand(app, invocation);
  tessera::addDoctorCommand(app, invocation);
  // After adding the subcommands, which would inherit the footer.
  app.footer(R"(
From text to a trained model:
  tessera data tokenizer --input corpus/train --vocab 4096 -o tokenizer.json
  tessera data tokenize --tokenizer tokenizer.json --input corpus/train --eval-input corpus/eval -o tokens
  tessera compile models/specs/gpt2-demo --recipe recipes/demo.yaml -o train_demo
  ./train_demo --data tokens --out run
  tessera generate run --prompt "The command"
  tessera serve run --port 8000
  tessera export run -o model

SUBCOMMAND --help says more of each.)");
  tessera::forgetOtherEnvironments(app, invocation.words);
  try {
    tessera::parseCommandLine(app, argc, argv);
  } catch (const CLI::ParseError &error) {
    // CLI11 has an exit code for each kind of error; we use one for all, like
    // training executables.
    invocation.exitCode = app.exit(error) == 0 ? 0 : 2;
  } catch (const std::system_error &) {
    if (!std::ferror(stdout))
      throw; // errors of fmt are already reported
  }
  if (std::string message = outputError();
      !message.empty() && invocation.exitCode == 0)
    invocation.fail(message.c_str());
  return invocation.exitCode;
}
