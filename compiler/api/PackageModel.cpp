#include "compiler/api/PackageModel.h"
#include "compiler/Files.h"
#include "models/SentenceModel.h"
#include "models/gguf/GgufModel.h"
#include "runtime/generate/ModelDirectory.h"
#include "runtime/serve/ModelChat.h"
#include <filesystem>

using namespace tessera;

StatusOr<std::optional<ModelSource>>
tessera::findWeights(const std::string &spec) {
  if (models::isGguf(spec))
    return findModel(spec);
  auto directory = findModelDirectory(spec);
  if (!directory)
    return std::optional<ModelSource>();
  const ModelFiles files(*directory);
  if (!files.has("model.safetensors") &&
      !files.has("model.safetensors.index.json"))
    return std::optional<ModelSource>();
  return findModel(spec);
}

// Reads the files other than weights that generation, chats or embeddings need.
static StatusOr<ModelFiles::Contents>
readModelFiles(const ModelSource &source) {
  std::vector<std::string> names{
      "config.json", kTokenizerFile, "generation_config.json",
      "tokenizer_config.json", "chat_template.jinja"};
  if (source.spec.hasScore)
    names.push_back(models::kRelevanceFile);
  else if (source.spec.isEncoder()) {
    auto sentence = models::loadSentenceModel(source.files);
    if (!sentence.ok())
      return sentence.status();
    for (std::string &name : sentenceModelFiles(*sentence))
      names.push_back(std::move(name));
  }
  ModelFiles::Contents contents;
  for (const std::string &name : names) {
    if (!source.files.has(name))
      continue;
    auto text = source.files.read(name, kMostPackagedTextBytes);
    if (!text.ok())
      return text.status();
    contents.emplace(name, text.take());
  }
  return contents;
}

// Checks that these files are sufficient and valid for generate, serve and
// embed.
static Status checkInputs(const ModelSource &source, const ModelFiles &files) {
  auto tokenizer = tokenizer::Tokenizer::of(files);
  if (!tokenizer.ok())
    return tokenizer.status();
  if (source.spec.isEncoder())
    return source.spec.hasScore ? models::loadRelevance(files).status()
                                : models::loadSentenceModel(files).status();
  auto config = loadGenerationConfig(files);
  if (!config.ok())
    return config.status();
  if (auto ends = endTokensOf(files, *config); !ends.ok())
    return ends.status();
  std::string lacks; // a model without a chat template is valid
  return serve::loadModelChat(files, *tokenizer, lacks).status();
}

// The path of the output, with links resolved. It must be a regular file, as it
// is replaced by a rename, and not a file of the model itself.
static StatusOr<std::string> findOutput(const std::string &output,
                                        const ModelSource &source) {
  namespace fs = std::filesystem;
  std::error_code ignored; // checkWritable reports these errors
  fs::path place = output;
  for (int links = 0; links < 40 && fs::is_symlink(place, ignored); ++links)
    place = place.parent_path() / fs::read_symlink(place, ignored);
  if (output == "-" ||
      (fs::exists(place, ignored) && !fs::is_regular_file(place, ignored) &&
       !fs::is_directory(place, ignored)))
    return Status::error(
        "'{}' is not a regular file, which a packaged model requires; name "
        "one, or omit the weights with --no-weights",
        output);
  if (source.isGguf() && fs::equivalent(place, source.files.place(), ignored))
    return Status::error("'{}' is the model itself; choose another output",
                         output);
  const fs::path folder = place.parent_path();
  if (fs::exists(place, ignored) && !PackagedModel::isOne(place.string()) &&
      fs::equivalent(folder.empty() ? "." : folder, source.files.place(),
                     ignored))
    return Status::error(
        "'{}' is a file of the model's own directory; choose another output",
        output);
  if (llvm::Error failure = checkWritable(place.string()))
    return Status::error("{}", llvm::toString(std::move(failure)));
  return place.string();
}

StatusOr<CompileSummary> tessera::packageModel(const CompileRequest &request,
                                               const ModelSource &source) {
  const std::string &directory = source.files.place();
  auto output = findOutput(request.output, source);
  if (!output.ok())
    return output.status();
  if (auto weights = source.weights.open(); !weights.ok())
    return weights.status();
  auto contents = readModelFiles(source);
  if (!contents.ok())
    return contents.status();
  TESSERA_RETURN_IF_ERROR(
      checkInputs(source, ModelFiles(directory, *contents)));
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  CompileRequest own = request;
  own.output = program.name();
  own.note = own.warning; // report progress
  auto summary = compile(own);
  if (!summary)
    return Status::error("{}", llvm::toString(summary.takeError()));
  TESSERA_RETURN_IF_ERROR(writePackagedModel(
      *output, {program.name(), source.weights, contents.take()}));
  return *summary;
}
