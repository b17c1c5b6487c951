// tessera generate: text from a trained run or a Hugging Face directory.
#include "tools/tessera/Commands.h"
#include "tools/tessera/GenerateSettings.h"
#include "tools/tessera/OpenedModel.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

static void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

static void note(std::string_view text) {
  std::fprintf(stderr, "tessera: %.*s\n", static_cast<int>(text.size()),
               text.data());
}

// Prints the prompt and what the model makes of it.
static Status printGenerated(const GenerateSettings &settings,
                             OpenedModel &opened) {
  bool begun = false;
  auto printText = [&](std::string_view text) {
    if (!begun)
      print(settings.options.prompt); // not before it is known that a text
                                      // follows
    begun = true;
    print(text);
  };
  StatusOr<GenerateResult> result =
      generateWith(*opened.model, opened.decodes, *opened.tokenizer,
                   settings.options, printText);
  if (result.ok() || begun)
    printText("\n");
  if (!result.ok())
    return result.status();
  if (!settings.quiet)
    std::fprintf(stderr, "%s: %zu tokens in %.2f s (%.1f tokens/s)\n",
                 opened.source.c_str(), result->tokens.size(), result->seconds,
                 static_cast<double>(result->tokens.size()) / result->seconds);
  return Status::success();
}

static Status generate(GenerateSettings &settings) {
  GenerateOptions &options = settings.options;
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  OpenedModel opened;
  TESSERA_RETURN_IF_ERROR(opened.read(settings.choice("generate")));
  if (!opened.isRun)
    TESSERA_RETURN_IF_ERROR(settings.takeAndSay(opened.config, note));
  TESSERA_RETURN_IF_ERROR(opened.open(/*mayScore=*/true, note));
  options.framed = !opened.isRun;
  options.endTokens = opened.endTokens;
  return printGenerated(settings, opened);
}

void tessera::addGenerateCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *command = app.add_subcommand(
      "generate", "Generate text from a trained run or a Hugging Face model");
  auto settings = std::make_shared<GenerateSettings>();
  settings->addTo(*command);
  command->add_option("--prompt", settings->options.prompt,
                      "text to continue; empty starts a document");
  command->add_flag("--ignore-end", settings->options.ignoreEnd,
                    "go on after the end of the text");
  command->callback([settings, &invocation] {
    if (Status status = generate(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
