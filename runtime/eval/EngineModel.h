// A model in this process, by the engine's scheduler.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/eval/EvalModel.h"
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/engine/Request.h"
#include "runtime/serve/Chat.h"

#include <memory>
#include <optional>

namespace tessera::eval {

struct EngineModelOptions {
  std::vector<int32_t> endTokens;    ///< that end generation
  std::optional<int32_t> startToken; ///< of a document, if the tokenizer has
                                     ///< none
  /// Of prompts that are chats, and must outlive the model; null: there are
  /// none.
  const serve::ChatRenderer *chat = nullptr;
  /// That everything is computed with; null: the model as it is.
  std::shared_ptr<const AdapterSlot> adapter;
};

/// Requests decode together, which does not change a bit of their results on a
/// CPU.
class EngineModel final : public EvalModel {
public:
  /// Model and tokenizer must outlive it.
  EngineModel(PagedModel &model, const tokenizer::Tokenizer &tokenizer,
              EngineModelOptions options);

  StatusOr<std::vector<Likelihood>>
  scoreContinuations(std::span<const Continuation> inputs) override;
  StatusOr<std::vector<Likelihood>>
  scoreDocuments(std::span<const Document> inputs, int64_t window) override;
  StatusOr<std::vector<std::string>>
  generate(std::span<const Prompt> prompts,
           const GenerationLimits &limits) override;

private:
  /// A continuation's tokens after those of its context.
  struct ScoredTokens {
    std::vector<int32_t> whole;
    std::size_t context = 0;
  };
  StatusOr<ScoredTokens> tokensOf(const Continuation &input);
  StatusOr<ScoredTokens> chatTokensOf(const Continuation &input);
  StatusOr<std::vector<int32_t>> tokensOf(const Prompt &prompt);
  std::vector<int32_t> framed(std::string_view text);
  StatusOr<std::vector<int32_t>> documentStart() const;
  Status add(std::vector<EngineRequest> &requests, EngineRequest request,
             const std::string &where) const;
  /// Runs the requests to their ends; an error if one of them fails.
  Status run(std::vector<EngineRequest> requests);

  PagedModel &model;
  const tokenizer::Tokenizer &tokenizer;
  tokenizer::Encoder encoder;
  EngineModelOptions options;
};

/// A part of a document that is read at once: tokens [begin, end), of which the
/// ones from `scored` on are predicted. Token -1 is the document's start.
struct Window {
  int64_t begin, scored, end;
};
/// The windows of a document of `tokens` tokens, each of which reads at most
/// `window` tokens to predict the last one.
std::vector<Window> rollingWindows(int64_t tokens, int64_t window);

} // namespace tessera::eval
