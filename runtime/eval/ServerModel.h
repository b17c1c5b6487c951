// A model of an OpenAI-compatible server, by /v1/completions, and for chats
// /v1/chat/completions.
#pragma once
#include "runtime/client/HttpClient.h"
#include "runtime/eval/EvalModel.h"

#include <nlohmann/json_fwd.hpp>

namespace tessera::eval {

/// Prompts are strings, which the server tokenizes and frames. The scored
/// tokens are those that begin in the text that is scored; a token that begins
/// in the context and ends in the text is not one of them. A document is read
/// whole, and must fit the server's context; its first token is scored only if
/// the server gives it a logprob, as it does where a token frames the prompt.
class ServerModel final : public EvalModel {
public:
  ServerModel(client::ServerAddress server, std::string model)
      : server(std::move(server)), name(std::move(model)) {}

  StatusOr<std::vector<Likelihood>>
  scoreContinuations(std::span<const Continuation> inputs) override;
  StatusOr<std::vector<Likelihood>>
  scoreDocuments(std::span<const Document> inputs, int64_t window) override;
  StatusOr<std::vector<std::string>>
  generate(std::span<const Prompt> prompts,
           const GenerationLimits &limits) override;

private:
  /// The choices of a completion of each prompt, in order.
  StatusOr<nlohmann::json> complete(std::span<const std::string> prompts,
                                    nlohmann::json fields,
                                    const std::string &where) const;
  StatusOr<std::vector<Likelihood>>
  score(std::span<const Continuation> inputs) const;

  client::ServerAddress server;
  std::string name;
};

} // namespace tessera::eval
