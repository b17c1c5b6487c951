// A cross-encoder, or another model that gives a score, served for ranking.
#pragma once
#include "runtime/infer/EmbeddingModel.h"
#include "runtime/serve/Ranking.h"
#include "runtime/serve/Serve.h"

namespace tessera::serve {

/// What turns a model's scores into relevance.
struct RankFacts {
  bool isLogistic = true; ///< relevance is the logistic function of the score
};

/// Tokenizes pairs of strings and interprets their scores, for the server and
/// the command line.
class PairScorer {
public:
  /// The tokenizer must outlive it.
  PairScorer(const tokenizer::Tokenizer &tokenizer, int64_t context,
             RankFacts facts)
      : context(context), facts(facts), encoder(tokenizer) {}

  /// The tokens of a query, which may have many documents.
  std::vector<uint32_t> encode(std::string_view first) {
    return encoder.encode(first);
  }
  /// The tokens of a pair, which are not empty. Errors are for the client; that
  /// of a long pair ends with `advice`.
  StatusOr<tokenizer::TextPair> tokens(std::span<const uint32_t> first,
                                       std::string_view second,
                                       std::optional<int64_t> truncate,
                                       std::string_view advice);
  /// Errors: the score is not finite.
  StatusOr<double> relevance(float score) const;

private:
  const int64_t context;
  const RankFacts facts;
  tokenizer::Encoder encoder;
};

/// serve() for such a model: it has /v1/rerank and /score, and other endpoints
/// return an error. `model` has vectors of one element.
Status serveRanking(EmbeddingModel &model,
                    const tokenizer::Tokenizer &tokenizer, RankFacts facts,
                    ServeOptions options);

} // namespace tessera::serve
