// tessera generate: text from a trained run or a Hugging Face directory.
#include "compiler/api/AdapterSettings.h"
#include "compiler/api/OpenedModel.h"
#include "runtime/serve/Forms.h"
#include "runtime/support/Text.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/GenerateSettings.h"
#include "tools/tessera/MeshOptions.h"
#include "tools/tessera/Note.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

using namespace tessera;

static void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

namespace {
/// Structured output: at most one is given. An empty regular expression is
/// valid and matches the empty text.
struct FormSettings {
  std::string regex, grammar, schema; ///< an expression, and files
  CLI::Option *hasRegex = nullptr, *hasGrammar = nullptr, *hasSchema = nullptr;
};
} // namespace

// The constraint of --regex, --grammar or --json-schema; null: none is given.
static StatusOr<std::shared_ptr<const serve::AnswerForm>>
readForm(const FormSettings &settings) {
  constexpr int64_t kMaxBytes = 4 << 20; // of the file
  const bool isRegex = settings.hasRegex->count() > 0,
             isGrammar = settings.hasGrammar->count() > 0;
  if (!isRegex && !isGrammar && settings.hasSchema->count() == 0)
    return std::shared_ptr<const serve::AnswerForm>();
  const std::string &file = isGrammar ? settings.grammar : settings.schema;
  std::string text = settings.regex;
  if (!isRegex) {
    if (file.empty())
      return Status::error("{}: the file name is empty",
                           isGrammar ? "--grammar" : "--json-schema");
    auto read = readTextFile(file, kMaxBytes);
    if (!read.ok())
      return read.status();
    text = read.take();
  }
  const char *kind = isRegex ? "regex" : isGrammar ? "grammar" : "json";
  auto form = serve::parseTextForm(kind, text);
  if (!form.ok())
    return Status::error("{}: {}", isRegex ? "--regex" : file, form.message());
  return form;
}

// Prints the prompt and the generated text.
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
  if (const auto &guide = settings.options.guide;
      guide && !result->ended && !guide->mayEnd())
    note(fmt::format("the text is cut off at --max-tokens {}, before it "
                     "matches its constraint; raise --max-tokens",
                     settings.options.maxTokens));
  if (result->droppedTokens > 0 && !settings.quiet)
    note(fmt::format("the prompt has {} tokens, more than the context of {}: "
                     "its first {} were dropped",
                     result->promptTokens, result->context,
                     result->droppedTokens));
  if (!settings.quiet)
    std::fprintf(stderr, "%s: %zu tokens in %.2f s (%.1f tokens/s)\n",
                 opened.source.c_str(), result->tokens.size(), result->seconds,
                 static_cast<double>(result->tokens.size()) / result->seconds);
  return Status::success();
}

// Reads and opens the model; on ranks, on all of them or none.
static Status openHere(GenerateSettings &settings, InferenceRanks *ranks,
                       const std::string &mesh, OpenedModel &opened) {
  if (ranks && !settings.adapter.empty())
    return Status::error("--adapter: models on a mesh have no adapters; merge "
                         "it with tessera export --merge, or omit --mesh");
  const TextSink say =
      ranks && !ranks->leads() ? [](std::string_view) {} : TextSink(note);
  ModelChoice choice = settings.choice("generate");
  choice.ranks = ranks;
  choice.decoder.mesh = mesh;
  TESSERA_RETURN_IF_ERROR(readModel(opened, choice, settings.adapter));
  if (!opened.isRun)
    TESSERA_RETURN_IF_ERROR(settings.takeAndSay(opened.config, say));
  return opened.open(/*mayScore=*/!ranks, say);
}

static Status generate(GenerateSettings &settings,
                       const FormSettings &formSettings, bool hasPrompt,
                       const std::string &mesh, InferenceRanks *ranks) {
  GenerateOptions &options = settings.options;
  auto form = readForm(formSettings);
  Status status = form.status();
  if (status.ok())
    status = checkSampling(options.sampling);
  if (!isUtf8(options.prompt))
    status = Status::error("--prompt: is not valid UTF-8");
  if (ranks)
    status = ranks->agree(status);
  TESSERA_RETURN_IF_ERROR(status);
  OpenedModel opened;
  settings.quiet |= ranks && !ranks->leads();
  status = openHere(settings, ranks, mesh, opened);
  if (ranks)
    status = ranks->begin(status);
  TESSERA_RETURN_IF_ERROR(status);
  if (ranks && !ranks->leads())
    return opened.follow();
  options.ranks = ranks;
  if (!settings.adapter.empty()) {
    TESSERA_RETURN_IF_ERROR(loadAdapter(settings.adapter, opened));
    options.adapter = 0;
  }
  options.framed = !opened.isRun;
  options.startToken = opened.startToken;
  if (!hasPrompt && !settings.quiet)
    note("no --prompt is given: the model starts a new document");
  options.endTokens = opened.endTokens;
  serve::AnswerForms forms(*opened.tokenizer);
  if (*form)
    options.guide = forms.guide(**form, opened.ends());
  return printGenerated(settings, opened);
}

void tessera::addGenerateCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *command = app.add_subcommand(
      "generate", "Generate text from a trained run or a Hugging Face model");
  auto settings = std::make_shared<GenerateSettings>();
  auto form = std::make_shared<FormSettings>();
  auto mesh = std::make_shared<MeshSettings>();
  settings->addTo(*command, invocation.words);
  form->hasRegex =
      command->add_option("--regex", form->regex,
                          "constrain the output to this regular expression "
                          "(supported syntax: docs/serving.md)");
  form->hasGrammar =
      command
          ->add_option("--grammar", form->grammar,
                       "constrain the output to the GBNF grammar of this file")
          ->type_name("FILE")
          ->excludes(form->hasRegex);
  form->hasSchema =
      command
          ->add_option("--json-schema", form->schema,
                       "constrain the output to the JSON schema of this file")
          ->type_name("FILE")
          ->excludes(form->hasRegex)
          ->excludes(form->hasGrammar);
  CLI::Option *prompt =
      command->add_option("--prompt", settings->options.prompt,
                          "text to continue; empty: start a new document");
  command->add_flag("--ignore-end", settings->options.ignoreEnd,
                    "continue after end tokens");
  addMeshOptions(*command, *mesh);
  command->callback([settings, form, prompt, mesh, &invocation] {
    runOnRanks(*mesh, invocation, [&](InferenceRanks *ranks) {
      return generate(*settings, *form, prompt->count() > 0, mesh->mesh, ranks);
    });
  });
}
