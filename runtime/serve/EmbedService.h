// An encoder behind the OpenAI API.
#pragma once
#include "runtime/infer/engine/EmbedEngine.h"
#include "runtime/serve/Embeddings.h"
#include "runtime/serve/Serve.h"

namespace tessera::serve {

/// What is known of an encoder's vectors besides their width.
struct EmbedFacts {
  std::string prompt;        ///< before every text
  std::vector<int64_t> cuts; ///< `dimensions` that may be asked for
  bool cutsAnywhere = false; ///< any may
  bool unit = false;         ///< vectors have length 1, also when they are cut
};

/// From inputs and requests to what an engine takes, and its vectors back: the
/// same for the server and the command line.
class TextEmbedder {
public:
  /// The tokenizer must outlive it.
  TextEmbedder(const tokenizer::Tokenizer &tokenizer,
               const EmbeddingShape &shape, EmbedFacts facts)
      : shape(shape), facts(std::move(facts)), encoder(tokenizer) {}

  /// The tokens of an input: those of a text with what stands before and after
  /// it, or those that are given. Errors are for the client; that of one that
  /// is too long ends with `advice`.
  StatusOr<std::vector<int32_t>> tokens(const PromptInput &input,
                                        std::optional<int64_t> truncate,
                                        std::string_view advice);
  /// Whether vectors of so many elements can be had.
  Status checkDimensions(int64_t dimensions) const;
  /// The first `dimensions` elements of each.
  std::vector<float> cut(std::vector<float> vectors, int64_t dimensions) const;

  const EmbeddingShape &shape;
  const EmbedFacts facts;

private:
  Status check(std::span<const int32_t> tokens, std::string_view advice) const;

  tokenizer::Encoder encoder;
};

/// serve() for an encoder: /v1/embeddings instead of what generates, which is
/// answered with the reason why not.
Status serveEmbeddings(EmbeddingModel &model,
                       const tokenizer::Tokenizer &tokenizer, EmbedFacts facts,
                       ServeOptions options);

} // namespace tessera::serve
