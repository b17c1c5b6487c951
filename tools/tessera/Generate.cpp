// tessera generate: text from a trained run.
#include "runtime/train/Generate.h"
#include "compiler/target/cuda/Cubin.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/DecoderProgram.h"
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

static void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Without a compiler for the device the run's own program still does.
static llvm::Error prepare(const RunPath &place, TemporaryFile &file,
                           GenerateOptions &options) {
  if (llvm::Error error = file.create())
    return error;
  options.program = file.name();
  llvm::Error error =
      compileDecoder(place, {.device = options.device}, file.name());
  bool lacksCompiler = llvm::StringRef(options.device).starts_with("cuda") &&
                       cuda::findNvcc().empty();
  if (!error || !lacksCompiler)
    return error;
  std::fprintf(stderr,
               "tessera: %s; without a program that decodes, every token "
               "computes its whole context\n",
               llvm::toString(std::move(error)).c_str());
  options.program.clear();
  return llvm::Error::success();
}

static void runGenerate(const std::string &run, GenerateOptions options,
                        bool quiet, Invocation &invocation) {
  StatusOr<RunPath> place = resolveRun(run);
  if (!place.ok())
    return invocation.fail(place.message().c_str());
  // What can be said at once is said before anything is compiled.
  if (Status status = checkGenerate(*place, options); !status.ok())
    return invocation.fail(status.message().c_str());
  TemporaryFile program;
  if (llvm::Error error = prepare(*place, program, options))
    return invocation.fail(llvm::toString(std::move(error)).c_str());
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

// CLI11 lets negative numbers wrap around where an option is unsigned.
static CLI::Validator wholeNumber(uint64_t least) {
  return CLI::Validator(
      [least](const std::string &text) {
        uint64_t number = 0;
        const char *end = text.data() + text.size();
        auto [stop, code] = std::from_chars(text.data(), end, number);
        return code == std::errc() && stop == end && number >= least
                   ? std::string()
                   : fmt::format("must be a whole number from {} on, got '{}'",
                                 least, text);
      },
      "");
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
      ->check(wholeNumber(1))
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
      ->check(wholeNumber(0))
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
