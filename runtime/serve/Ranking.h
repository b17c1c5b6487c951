// POST /v1/rerank and /score: their requests as values, and their responses.
// The forms are those of Jina's and Cohere's rerankers, and of vLLM.
#pragma once
#include "runtime/serve/ApiFields.h"

#include <span>

namespace tessera::serve {

inline bool isRanking(Endpoint endpoint) {
  return endpoint == Endpoint::rerank || endpoint == Endpoint::score;
}

/// Pairs of strings to be scored.
struct RankingRequest {
  std::string model;
  /// A query, or `text_1`: one, which is compared with all of `seconds`, or as
  /// many.
  std::vector<std::string> firsts;
  std::vector<std::string> seconds; ///< documents, or `text_2`
  int64_t top = 0;                  ///< of rerank: so many results; 0: all
  bool returnsDocuments = true;     ///< of rerank
  /// As of EmbeddingsRequest, for both strings together.
  std::optional<int64_t> truncate;
};

/// In the order in which they are read.
std::span<const FieldOf<RankingRequest>> rankingFields();

/// Reads a body of /v1/rerank or /score. Unknown fields are errors that name
/// them (docs/embeddings.md lists the fields).
std::variant<RankingRequest, ApiError>
parseRankingRequest(std::string_view body, Endpoint endpoint);

/// The indices of scores, the highest first; of scores that are equal, the
/// first comes first.
std::vector<std::size_t> byRelevance(std::span<const double> scores);

/// The response's JSON: results in order of their scores, which are finite, or
/// for /score in order of the pairs.
std::string rankingAnswer(Endpoint endpoint, const RankingRequest &request,
                          std::string_view model,
                          std::span<const double> scores, int64_t tokens,
                          const std::string &id);

} // namespace tessera::serve
