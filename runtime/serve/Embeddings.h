// POST /v1/embeddings: its request as a value, and its response.
#pragma once
#include "runtime/serve/ApiFields.h"

#include <span>

namespace tessera::serve {

struct EmbeddingsRequest {
  std::string model;
  std::vector<PromptInput> inputs; ///< at least one
  bool base64 = false;
  std::optional<int64_t> dimensions;
  /// Longer inputs are truncated to so many tokens; nothing: they are an error.
  /// -1: to the model's context.
  std::optional<int64_t> truncate;
};

inline constexpr std::size_t kMaxInputs = 2048;

/// In the order in which they are read.
std::span<const FieldOf<EmbeddingsRequest>> embeddingsFields();

/// Reads a body. Unknown fields are errors that name them (docs/embeddings.md
/// lists the fields).
std::variant<EmbeddingsRequest, ApiError>
parseEmbeddingsRequest(std::string_view body);

/// The response's JSON; `vectors` [inputs, width], all of them finite.
std::string embeddingsAnswer(std::string_view model,
                             std::span<const float> vectors, int64_t width,
                             bool base64, int64_t tokens);

/// RFC 4648, with padding.
std::string base64Of(std::span<const std::byte> bytes);

} // namespace tessera::serve
