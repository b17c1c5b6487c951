// A run or another model, ready to generate text. Shared by `tessera generate`,
// `chat` and `serve`.
#pragma once
#include "compiler/api/ModelSource.h"
#include "runtime/generate/Generate.h"
#include "runtime/generate/ModelDirectory.h"
#include "runtime/serve/Chat.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// Options of the command line for the model.
struct ModelChoice : ProgramOptions {
  std::string place; ///< a run, a model's directory, the hub's name or its file
  unsigned threads = 0; ///< 0: all processors
  /// Of a CPU, instead of new threads (DeviceOptions); may be null.
  std::shared_ptr<hal::ThreadPool> pool = {};
  StartPhases *phases = nullptr; ///< receives progress; may be null
  bool keepsWeights = true;      ///< of a directory, where the cache does
  /// Of the mesh of `decoder`, joined; null: there is none.
  InferenceRanks *ranks = nullptr;
};

/// Whether the model at `place` can be sharded over ranks, which only the
/// directory of a model that generates text can; null: it is not a model's.
Status checkSharded(const std::string &place,
                    const std::optional<ModelSource> &model);

class OpenedModel {
public:
  /// Reads everything but programs and weights; the cheapest checks come first.
  Status read(const ModelChoice &choice);
  /// The same if `place` is already known to be a model or a run.
  Status read(const ModelChoice &choice, std::optional<ModelSource> model);
  /// Reads the model's chat template; a run's is ChatML. `note` receives a
  /// message if there is none.
  Status readChat(std::string &note);
  /// Overrides a key of the recipe, "inference.context=512", where programs are
  /// compiled here.
  void addKey(std::string key) { choice.set.push_back(std::move(key)); }
  /// Compiles inference programs, or takes them from the cache, and loads
  /// weights. `mayScore`: if programs cannot be compiled here for a run's
  /// device, its own program is used; `program` then stays empty and `note`
  /// receives a message.
  Status open(bool mayScore, const TextSink &note);
  /// Of ranks but the first, when they begin: computes what rank 0 does until
  /// that ends.
  Status follow();

  bool isRun = false;
  std::string name;                  ///< for messages
  std::string folder;                ///< run, model directory or file
  std::string source;                ///< "step-000100", or `folder`
  GenerationConfig config;           ///< not for a run
  std::vector<int32_t> endTokens;    ///< not for a run; may be empty
  std::optional<int32_t> startToken; ///< not for a run: first token of a text
  std::optional<tokenizer::Tokenizer> tokenizer;
  const serve::ChatRenderer &chat() const {
    return ownChat ? *ownChat : serve::chatMl();
  }
  /// Tokens that end a text; the tokenizer's if the model names none.
  std::vector<int32_t> ends() const;
  std::unique_ptr<SessionModel> model;
  bool decodes = true;  ///< by inference programs with a KV cache
  WeightsCache weights; ///< of a directory

private:
  Status readRun();
  Status readModel();
  Status openRun(bool mayScore, const TextSink &note);
  Status openModel(const TextSink &note);
  GenerateOptions options() const;

  ModelChoice choice;
  RunPath run;
  std::optional<ModelSource> known; ///< nothing for a run
  TemporaryFile program;
  std::unique_ptr<serve::ChatRenderer> ownChat;
};

} // namespace tessera
