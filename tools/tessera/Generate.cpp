// tessera generate: text from a trained run.
#include "runtime/train/Generate.h"
#include "tools/tessera/Commands.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

using namespace tessera;

static void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

static void runGenerate(const std::string &run, const GenerateOptions &options,
                        bool quiet, Invocation &invocation) {
  bool begun = false;
  auto printText = [&](std::string_view text) {
    if (!begun)
      print(options.prompt); // not before it is known that a text follows
    begun = true;
    print(text);
  };
  auto printNote = [](std::string_view note) {
    std::fprintf(stderr, "tessera: %.*s\n", static_cast<int>(note.size()),
                 note.data());
  };
  StatusOr<GenerateResult> result =
      generateFromRun(run, options, printText, printNote);
  if (result.ok() || begun)
    printText("\n");
  if (!result.ok())
    return invocation.fail(result.message().c_str());
  if (!quiet)
    std::fprintf(stderr, "%s: %zu tokens in %.2f s (%.1f tokens/s)\n",
                 result->checkpoint.c_str(), result->tokens.size(),
                 result->seconds,
                 static_cast<double>(result->tokens.size()) / result->seconds);
}

void tessera::addGenerateCommand(CLI::App &app, Invocation &invocation) {
  auto options = std::make_shared<GenerateOptions>();
  auto run = std::make_shared<std::string>();
  auto quiet = std::make_shared<bool>(false);
  CLI::App *command =
      app.add_subcommand("generate", "Generate text from a trained run");
  command
      ->add_option("RUN", *run,
                   "run directory, or one checkpoint of it (RUN/step-000100)")
      ->required();
  command->add_option("--prompt", options->prompt,
                      "text to continue; empty starts a document");
  command
      ->add_option("--max-tokens", options->maxTokens,
                   "tokens to generate at most")
      ->capture_default_str();
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "0 takes the most likely token")
      ->capture_default_str();
  command
      ->add_option("--top-k", options->sampling.topK,
                   "only the k most likely tokens; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.topP,
                   "only the fewest tokens with this probability")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "of the draws")
      ->capture_default_str();
  command
      ->add_option("--device", options->device,
                   "where to run: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: all processors")
      ->capture_default_str();
  command->add_flag("--ignore-end", options->ignoreEnd,
                    "go on after the end of the text");
  command->add_flag("--quiet", *quiet, "no line about speed");
  command->callback(
      [=, &invocation] { runGenerate(*run, *options, *quiet, invocation); });
}
