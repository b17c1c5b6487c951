#include "compiler/api/ModelSource.h"
#include "models/HfConfig.h"
#include "models/gguf/GgufModel.h"
#include "runtime/generate/ModelDirectory.h"
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

using namespace tessera;
namespace fs = std::filesystem;

std::string tessera::lastNameOf(const std::string &path) {
  auto folder = fs::absolute(path).lexically_normal();
  return folder.has_filename() ? folder.filename().string()
                               : folder.parent_path().filename().string();
}

// The error for a file that is not a model, with what to do about it.
static Status notAModel(const std::string &place) {
  if (::access(place.c_str(), R_OK) != 0)
    return Status::error("'{}' cannot be read: {}", place,
                         std::strerror(errno));
  const fs::path path = fs::path(place).lexically_normal();
  const std::string extension = path.extension().string();
  if (path.filename() == "config.json" || extension == ".safetensors")
    return Status::error(
        "'{}' is one file of a model; give its directory: {}", place,
        path.has_parent_path() ? path.parent_path().string() : ".");
  auto artifact = ArtifactReader::open(place);
  if (!artifact.ok())
    return Status::error("'{}' is neither a directory nor a packaged model "
                         "(tessera compile DIR --mode infer)",
                         place);
  if (artifact->hasProgram("train_step"))
    return Status::error(
        "'{}' is a training executable; run it with --out RUN and give RUN",
        place);
  return Status::error("'{}' has programs but no weights; compile a directory "
                       "with weights: tessera compile DIR --mode infer -o {}",
                       place, place);
}

// A name such as "Qwen/Qwen3-0.6B" in the Hugging Face cache is used as is.
static StatusOr<ModelSource> readSource(std::string name, ModelFiles files) {
  auto loaded = models::loadedConfig(files);
  if (!loaded.ok())
    return loaded.status();
  WeightFiles weights(files.place());
  return ModelSource{std::move(name), std::move(files), loaded->spec,
                     std::move(weights)};
}

static StatusOr<ModelSource> readGgufSource(const std::string &place) {
  auto model = models::openGguf(place);
  if (!model.ok())
    return model.status();
  auto source =
      readSource(fs::path(place).stem().string(), std::move(model->files));
  if (source.ok()) {
    source->weights = std::move(model->weights);
    source->note = std::move(model->note);
  }
  return source;
}

StatusOr<std::optional<ModelSource>>
tessera::findModel(const std::string &place) {
  auto found =
      [](StatusOr<ModelSource> source) -> StatusOr<std::optional<ModelSource>> {
    if (!source.ok())
      return source.status();
    return std::optional(source.take());
  };
  if (models::isGguf(place))
    return found(readGgufSource(place));
  std::error_code ignored;
  if (fs::exists(place, ignored) && !fs::is_directory(place, ignored)) {
    if (!PackagedModel::isOne(place))
      return notAModel(place);
    auto packaged = PackagedModel::open(place);
    if (!packaged.ok())
      return packaged.status();
    auto source =
        found(readSource(fs::path(place).stem().string(), packaged->files()));
    if (source.ok())
      (*source)->packaged = packaged.take();
    return source;
  }
  auto directory = findModelDirectory(place);
  if (!directory)
    return std::optional<ModelSource>();
  return found(
      readSource(*directory == place ? lastNameOf(place) : place, *directory));
}

Status tessera::checkProgramOptions(const ModelSource &source,
                                    const ProgramOptions &programs) {
  if (!source.packaged || (programs.recipe.empty() && programs.set.empty()))
    return Status::success();
  return Status::error("'{}' is compiled already: --recipe, --set, --quant, "
                       "--kv and --max-context (--set inference.context=N) "
                       "apply only to model directories and tessera compile",
                       source.files.place());
}

StatusOr<std::unique_ptr<SessionModel>>
tessera::openModel(const ModelSource &source, const ProgramOptions &programs,
                   const GenerateOptions &options) {
  if (source.packaged) {
    endPhase(options.phases, "programs");
    return openPackagedModel(*source.packaged, options);
  }
  // Reports files that cannot be read before compiling.
  if (auto weights = source.weights.open(); !weights.ok())
    return weights.status();
  if (!source.note.empty() && programs.decoder.note)
    programs.decoder.note(source.note);
  auto compile = [&] {
    llvm::Error error =
        compileModelDecoder(source.files, source.spec, programs.decoder,
                            programs.recipe, programs.set, options.program);
    return error ? Status::error("{}", llvm::toString(std::move(error)))
                 : Status::success();
  };
  InferenceRanks *ranks = options.ranks;
  TESSERA_RETURN_IF_ERROR(ranks ? ranks->broadcastFile(compile, options.program)
                                : compile());
  endPhase(options.phases, "programs");
  if (!ranks)
    return openModelDirectory(source.weights, options);
  std::unique_ptr<SessionModel> model;
  TESSERA_RETURN_IF_ERROR(ranks->work([&] {
    auto opened = openModelDirectory(source.weights, options);
    if (opened.ok())
      model = opened.take();
    return opened.status();
  }));
  return model;
}
