// A run or another model, ready to write text: what `tessera generate`, `chat`
// and `serve` have in common.
#pragma once
#include "runtime/serve/Chat.h"
#include "runtime/generate/Generate.h"
#include "runtime/generate/ModelDirectory.h"
#include "tools/tessera/ModelSource.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// What the command line says of the model.
struct ModelChoice : ProgramOptions {
  std::string place; ///< a run, a model's directory, the hub's name or its file
  unsigned threads = 0;          ///< 0: all processors
  StartPhases *phases = nullptr; ///< told how far it is; may be null
  bool keepsWeights = true;      ///< of a directory, where the cache does
};

class OpenedModel {
public:
  /// Everything but programs and weights, in the order in which errors are
  /// cheap.
  Status read(const ModelChoice &choice);
  /// The same where it is known already whether `place` is a model.
  Status read(const ModelChoice &choice, std::optional<ModelSource> model);
  /// Reads the model's template for chats; a run's is ChatML. `note`: a line
  /// that says that there is none.
  Status readChat(std::string &note);
  /// Compiles what decodes, or takes it from the cache, and fills in weights.
  /// `mayScore`: where a run's device has no compiler here, its own program
  /// does, and `program` stays empty; `note` then says so.
  Status open(bool mayScore, const TextSink &note);

  bool isRun = false;
  std::string name;                  ///< for people
  std::string folder;                ///< the run or the directory, or the file
  std::string source;                ///< "step-000100", or as `folder`
  GenerationConfig config;           ///< not of a run
  std::vector<int32_t> endTokens;    ///< the same; may be none
  std::optional<int32_t> startToken; ///< the same: what begins a text
  std::optional<tokenizer::Tokenizer> tokenizer;
  const serve::ChatRenderer &chat() const {
    return ownChat ? *ownChat : serve::chatMl();
  }
  /// Tokens that end a text, the tokenizer's own where the model names none.
  std::vector<int32_t> ends() const;
  std::unique_ptr<SessionModel> model;
  bool decodes = true;  ///< by a program that keeps keys and values
  WeightsCache weights; ///< of a directory

private:
  Status readRun();
  Status readModel();
  Status openRun(bool mayScore, const TextSink &note);
  Status openModel(const TextSink &note);
  GenerateOptions options() const;

  ModelChoice choice;
  RunPath run;
  std::optional<ModelSource> known; ///< nothing of a run
  TemporaryFile program;
  std::unique_ptr<serve::ChatRenderer> ownChat;
};

} // namespace tessera
