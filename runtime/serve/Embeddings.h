// POST /v1/embeddings: its request as a value, and its answer.
#pragma once
#include "runtime/serve/ApiFields.h"

#include <span>

namespace tessera::serve {

struct EmbeddingsRequest {
  std::string model;
  std::vector<PromptInput> inputs; ///< at least one
  bool base64 = false;
  std::optional<int64_t> dimensions;
  /// A longer text is cut to so many tokens; nothing: it is refused. -1: as
  /// many as the model takes.
  std::optional<int64_t> truncate;
};

inline constexpr std::size_t kMaxInputs = 2048;

/// In the order in which they are read.
std::span<const FieldOf<EmbeddingsRequest>> embeddingsFields();

/// Reads a body. Fields that are not known are errors that name them
/// (docs/embeddings.md has the list).
std::variant<EmbeddingsRequest, ApiError>
parseEmbeddingsRequest(std::string_view body);

/// The answer's JSON; `vectors` [texts, width], all of them numbers.
std::string embeddingsAnswer(std::string_view model,
                             std::span<const float> vectors, int64_t width,
                             bool base64, int64_t tokens);

/// RFC 4648, with padding.
std::string base64Of(std::span<const std::byte> bytes);

} // namespace tessera::serve
