// An encoder served by the OpenAI API.
#pragma once
#include "runtime/infer/engine/EmbedEngine.h"
#include "runtime/serve/Embeddings.h"
#include "runtime/serve/Serve.h"

namespace tessera::serve {

/// An encoder's properties besides the width of its embeddings.
struct EmbedFacts {
  std::string prompt;        ///< prefix of every input
  std::vector<int64_t> cuts; ///< supported values of `dimensions`
  bool cutsAnywhere = false; ///< any value is supported
  bool unit = false;         ///< embeddings have norm 1, also truncated ones
};

/// Tokenizes inputs and truncates embeddings, for the server and the command
/// line.
class TextEmbedder {
public:
  /// The tokenizer must outlive it.
  TextEmbedder(const tokenizer::Tokenizer &tokenizer,
               const EmbeddingShape &shape, EmbedFacts facts)
      : shape(shape), facts(std::move(facts)), encoder(tokenizer) {}

  /// The tokens of an input: a string is framed by the tokenizer, tokens are
  /// taken as they are. Errors are for the client; that of a long input ends
  /// with `advice`.
  StatusOr<std::vector<int32_t>> tokens(const PromptInput &input,
                                        std::optional<int64_t> truncate,
                                        std::string_view advice);
  /// Whether embeddings may have so many elements.
  Status checkDimensions(int64_t dimensions) const;
  /// The first `dimensions` elements of each.
  std::vector<float> cut(std::vector<float> vectors, int64_t dimensions) const;

  const EmbeddingShape &shape;
  const EmbedFacts facts;

private:
  Status check(std::span<const int32_t> tokens, std::string_view advice) const;

  tokenizer::Encoder encoder;
};

/// serve() for an encoder: it has /v1/embeddings, and the endpoints of
/// generation return an error.
Status serveEmbeddings(EmbeddingModel &model,
                       const tokenizer::Tokenizer &tokenizer, EmbedFacts facts,
                       ServeOptions options);

} // namespace tessera::serve
