// tessera generate: text from a trained run or a Hugging Face directory.
#include "runtime/train/Generate.h"
#include "compiler/target/cuda/Cubin.h"
#include "models/HfConfig.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/EncoderProgram.h"
#include "tools/tessera/GenerateSettings.h"
#include <CLI/CLI.hpp>
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
                           GenerateSettings &settings) {
  GenerateOptions &options = settings.options;
  if (llvm::Error error = file.create())
    return error;
  options.program = file.name();
  llvm::Error error = compileDecoder(
      place, {.device = options.device, .cache = settings.cache}, file.name());
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

static void note(std::string_view text) {
  std::fprintf(stderr, "tessera: %.*s\n", static_cast<int>(text.size()),
               text.data());
}

// Prints the prompt and what `generate` makes of it.
static void printGenerated(
    const GenerateSettings &settings, Invocation &invocation,
    llvm::function_ref<StatusOr<GenerateResult>(const TextSink &)> generate) {
  bool begun = false;
  auto printText = [&](std::string_view text) {
    if (!begun)
      print(settings.options.prompt); // not before it is known that a text
                                      // follows
    begun = true;
    print(text);
  };
  StatusOr<GenerateResult> result = generate(printText);
  if (result.ok() || begun)
    printText("\n");
  if (!result.ok())
    return invocation.fail(result.message().c_str());
  if (!settings.quiet)
    std::fprintf(stderr, "%s: %zu tokens in %.2f s (%.1f tokens/s)\n",
                 result->checkpoint.c_str(), result->tokens.size(),
                 result->seconds,
                 static_cast<double>(result->tokens.size()) / result->seconds);
}

static void generateWithRun(GenerateSettings &settings,
                            Invocation &invocation) {
  GenerateOptions &options = settings.options;
  StatusOr<RunPath> place = resolveRun(settings.place);
  if (!place.ok())
    return invocation.fail(place.message().c_str());
  // What can be said at once is said before anything is compiled.
  if (Status status = checkGenerate(*place, options); !status.ok())
    return invocation.fail(status.message().c_str());
  if (!settings.recipe.empty() || !settings.set.empty())
    return invocation.fail("--recipe, --set and --quant are for model "
                           "directories; a run has its recipe");
  TemporaryFile program;
  if (llvm::Error error = prepare(*place, program, settings))
    return invocation.fail(llvm::toString(std::move(error)).c_str());
  printGenerated(settings, invocation, [&](const TextSink &sink) {
    return generateFromRun(settings.place, options, sink, note);
  });
}

//===--- model directories ------------------------------------------------===//

// Everything of the directory but the weights, in the order in which errors are
// cheap.
static Status readDirectory(GenerateSettings &settings,
                            models::ModelSpec &spec) {
  StatusOr<GenerationConfig> config = loadGenerationConfig(settings.place);
  if (!config.ok())
    return config.status();
  settings.take(*config);
  TESSERA_RETURN_IF_ERROR(checkSampling(settings.options.sampling));
  TESSERA_RETURN_IF_ERROR(hal::checkDeviceName(settings.options.device));
  StatusOr<models::LoadedConfig> model = models::loadHfConfig(settings.place);
  if (!model.ok())
    return model.status();
  spec = model->spec;
  if (spec.isEncoder())
    return encoderGeneratesNothing(spec);
  auto ends = endTokensOf(settings.place, *config);
  if (!ends.ok())
    return ends.status();
  settings.options.endTokens = ends.take();
  auto starts = startTokensOf(settings.place);
  if (!starts.ok())
    return starts.status();
  settings.options.startTokens = starts.take();
  if (!config->unused.empty())
    note(fmt::format("generation_config.json: not supported and passed over: "
                     "{}",
                     fmt::join(config->unused, ", ")));
  return Status::success();
}

static void generateWithModel(GenerateSettings &settings,
                              Invocation &invocation) {
  models::ModelSpec spec;
  if (Status status = readDirectory(settings, spec); !status.ok())
    return invocation.fail(status.message().c_str());
  if (!settings.quiet)
    note(settings.describe());
  TemporaryFile program;
  llvm::Error error = program.create();
  if (!error)
    error = compileModelDecoder(
        settings.place, spec,
        {.device = settings.options.device, .cache = settings.cache},
        settings.recipe, settings.set, program.name());
  if (error)
    return invocation.fail(llvm::toString(std::move(error)).c_str());
  settings.options.program = program.name();
  printGenerated(settings, invocation, [&](const TextSink &sink) {
    return generateFromModel(settings.place, settings.options, sink);
  });
}

void tessera::addGenerateCommand(CLI::App &app, Invocation &invocation) {
  CLI::App *command = app.add_subcommand(
      "generate", "Generate text from a trained run or a Hugging Face model");
  auto settings = std::make_shared<GenerateSettings>();
  settings->addTo(*command);
  command->callback([settings, &invocation] {
    if (auto directory = findModelDirectory(settings->place)) {
      settings->place = *directory;
      return generateWithModel(*settings, invocation);
    }
    generateWithRun(*settings, invocation);
  });
}
