// Perplexity of a model on a text.
#pragma once
#include "runtime/infer/PagedModel.h"

namespace tessera {

struct Perplexity {
  double value;    ///< exp of the mean negative log-likelihood of a token
  int64_t counted; ///< tokens that were predicted
};

/// Splits `tokens` into windows of `window` tokens (the last one may be
/// shorter, but has at least two). Each window is read from its beginning,
/// after `starts`, such as <s>. The model predicts all tokens but each window's
/// first from those before them in the window; with `starts` it predicts the
/// first one too. Errors: a window with its starts
/// is longer than the context or than the available pages; fewer than two
/// tokens.
StatusOr<Perplexity> measurePerplexity(PagedModel &model,
                                       std::span<const int32_t> tokens,
                                       std::span<const int32_t> starts,
                                       int64_t window);

} // namespace tessera
