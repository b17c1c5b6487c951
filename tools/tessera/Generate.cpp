// tessera generate: text from a trained run.
#include "runtime/train/Generate.h"
#include "compiler/Driver.h"
#include "compiler/target/cuda/Cubin.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/train/RunDirectory.h"
#include "tools/tessera/Commands.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Signals.h"
#include <CLI/CLI.hpp>
#include <charconv>
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
                                  const std::string &device,
                                  const std::string &output) {
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
                           GenerateOptions &options) {
  if (llvm::Error error = file.create())
    return error;
  options.program = file.name();
  llvm::Error error = compileDecoder(place, options.device, file.name());
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
