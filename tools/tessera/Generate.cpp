// tessera generate: text from a trained run or a Hugging Face directory.
#include "runtime/train/Generate.h"
#include "compiler/Driver.h"
#include "compiler/target/cuda/Cubin.h"
#include "models/HfConfig.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/train/RunDirectory.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/GenerateSettings.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Signals.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

using namespace tessera;

static void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The targets of a device; those of a GPU that is not known yet are all.
static std::vector<std::string> targetsOf(llvm::StringRef device) {
  if (device.consume_front("cuda-emu"))
    return {device.consume_front(":") ? ("cuda:" + device).str()
                                      : "cuda:sm_80"};
  if (device.starts_with("cuda"))
    return {"cuda:sm_80", "cuda:sm_90a"};
  return {"cpu"};
}

// What decodes the run's model, compiled into a file of its own: the cache
// keeps it for the next time.
static llvm::Error compileDecoder(const RunPath &place,
                                  const GenerateSettings &settings,
                                  const std::string &output) {
  const std::string &device = settings.options.device;
  StatusOr<ArtifactReader> trained = ArtifactReader::open(place.program());
  if (!trained.ok())
    return llvm::createStringError(trained.message());
  auto recipe = recipe::parseRecipe(trained->root().recipe()->string_view(),
                                    place.program());
  if (!recipe.ok())
    return llvm::createStringError(recipe.message());
  // What the run was told, which may be more than its program was made with.
  auto told = recipe::loadRecipe(place.run + "/" + kRecipeFile);
  if (!told.ok())
    return llvm::createStringError(told.message());
  const recipe::Recipe::Inference &inference = told->inference;
  // Of places behind the trained ones the model knows nothing.
  int64_t context = std::min(inference.context, recipe->batch.sequence);
  // Programs that generate know no fp64; weights are rounded as they are read.
  recipe::Precision compute = recipe->compute == recipe::Precision::Fp64
                                  ? recipe::Precision::Fp32
                                  : recipe->compute;
  CompileRequest request;
  request.spec = place.program();
  request.configText = trained->root().model_config()->str();
  request.set = {fmt::format("precision.compute={}", name(compute)),
                 fmt::format("inference.context={}", context),
                 fmt::format("inference.chunk={}", inference.chunk),
                 fmt::format("inference.page={}", inference.page),
                 "inference.batch=1"};
  request.targets = targetsOf(device);
  request.emulate = llvm::StringRef(device).starts_with("cuda-emu");
  request.infer = true;
  request.executable = false;
  request.output = output;
  request.cache = settings.cache;
  request.rebuildCommand = "tessera generate " + shellQuoted(place.run);
  return compile(request).takeError();
}

// A name for a file that goes when the process needs it no more, or is killed
// by a signal.
namespace {
class TemporaryFile {
public:
  llvm::Error create() {
    int descriptor = -1;
    if (std::error_code error = llvm::sys::fs::createTemporaryFile(
            "tessera", "tsr", descriptor, path))
      return llvm::createStringError(error, "cannot create a temporary file");
    ::close(descriptor);
    llvm::sys::RemoveFileOnSignal(path);
    return llvm::Error::success();
  }
  ~TemporaryFile() {
    if (path.empty())
      return;
    llvm::sys::fs::remove(path);
    llvm::sys::DontRemoveFileOnSignal(path);
  }
  std::string name() const { return path.str().str(); }

private:
  llvm::SmallString<128> path;
};
} // namespace

// Without a compiler for the device the run's own program still does.
static llvm::Error prepare(const RunPath &place, TemporaryFile &file,
                           GenerateSettings &settings) {
  GenerateOptions &options = settings.options;
  if (llvm::Error error = file.create())
    return error;
  options.program = file.name();
  llvm::Error error = compileDecoder(place, settings, file.name());
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
    return invocation.fail("--recipe and --set are for model directories; a "
                           "run has its recipe");
  TemporaryFile program;
  if (llvm::Error error = prepare(*place, program, settings))
    return invocation.fail(llvm::toString(std::move(error)).c_str());
  printGenerated(settings, invocation, [&](const TextSink &sink) {
    return generateFromRun(settings.place, options, sink, note);
  });
}

//===--- model directories ------------------------------------------------===//

// What decodes the directory's model. Weights are computed with in bf16 where
// they are kept so, else in f32, unless somebody says otherwise.
static llvm::Error compileModel(const GenerateSettings &settings,
                                const models::ModelSpec &spec,
                                const std::string &output) {
  CompileRequest request;
  request.spec = settings.place;
  request.recipe = settings.recipe;
  if (settings.recipe.empty())
    request.set.push_back(spec.checkpointDtype == "bfloat16"
                              ? "precision.compute=bf16"
                              : "precision.compute=fp32");
  request.set.push_back("inference.batch=1"); // one text, unless asked for
  request.set.insert(request.set.end(), settings.set.begin(),
                     settings.set.end());
  request.targets = targetsOf(settings.options.device);
  request.emulate =
      llvm::StringRef(settings.options.device).starts_with("cuda-emu");
  request.infer = true;
  request.executable = false;
  request.output = output;
  request.cache = settings.cache;
  request.rebuildCommand = "tessera generate " + shellQuoted(settings.place);
  return compile(request).takeError();
}

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
    error = compileModel(settings, spec, program.name());
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
