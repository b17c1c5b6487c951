#include "tools/tessera/ShipModel.h"
#include "compiler/Files.h"
#include "models/SentenceModel.h"
#include "runtime/serve/ModelChat.h"
#include "runtime/train/ModelDirectory.h"
#include <filesystem>

using namespace tessera;

StatusOr<std::optional<ModelSource>>
tessera::findWeights(const std::string &spec) {
  auto directory = findModelDirectory(spec);
  if (!directory)
    return std::optional<ModelSource>();
  const ModelFiles files(*directory);
  if (!files.has("model.safetensors") &&
      !files.has("model.safetensors.index.json"))
    return std::optional<ModelSource>();
  return findModel(spec);
}

// That texts can be read and written with the model's files, as generate, serve
// and embed would find out; and which files these are.
static StatusOr<std::vector<std::string>>
checkFiles(const ModelSource &source) {
  const ModelFiles &files = source.files;
  if (auto weights = SafetensorsModel::open(files.place()); !weights.ok())
    return weights.status();
  auto tokenizer = tokenizer::Tokenizer::of(files);
  if (!tokenizer.ok())
    return tokenizer.status();
  std::vector<std::string> names{"config.json", "tokenizer.json"};
  if (source.spec.isEncoder()) {
    auto sentence = models::loadSentenceModel(files);
    if (!sentence.ok())
      return sentence.status();
    for (std::string &name : sentenceModelFiles(*sentence))
      names.push_back(std::move(name));
    return names;
  }
  auto config = loadGenerationConfig(files);
  if (!config.ok())
    return config.status();
  auto ends = endTokensOf(files, *config);
  if (!ends.ok())
    return ends.status();
  std::string lacks; // what is no chat's model is one all the same
  auto chat = serve::loadModelChat(files, *tokenizer, lacks);
  if (!chat.ok())
    return chat.status();
  for (const char *name : {"generation_config.json", "tokenizer_config.json",
                           "chat_template.jinja"})
    names.emplace_back(name);
  return names;
}

StatusOr<CompileSummary> tessera::shipModel(const CompileRequest &request,
                                            const ModelSource &source) {
  constexpr int64_t kMostBytes = 512 << 20; // as a tokenizer may have
  auto failed = [](llvm::Error error) {
    return Status::error("{}", llvm::toString(std::move(error)));
  };
  auto names = checkFiles(source);
  if (!names.ok())
    return names.status();
  if (llvm::Error error = checkWritable(request.output))
    return failed(std::move(error));
  ShippedParts parts;
  for (const std::string &name : *names) {
    if (!source.files.has(name))
      continue;
    auto text = source.files.read(name, kMostBytes);
    if (!text.ok())
      return text.status();
    parts.files.emplace(name, text.take());
  }
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return failed(std::move(error));
  CompileRequest own = request;
  own.output = parts.program = program.name();
  parts.checkpoint = source.files.place();
  auto summary = compile(own);
  if (!summary)
    return failed(summary.takeError());
  if (Status status = writeShippedModel(request.output, parts); !status.ok())
    return status;
  return *summary;
}
