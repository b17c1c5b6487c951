// How well a model foretells a text.
#pragma once
#include "runtime/infer/PagedModel.h"

namespace tessera {

struct Perplexity {
  double value;    ///< exp of the mean negative log-likelihood of a token
  int64_t counted; ///< tokens that were foretold
};

/// Cuts `tokens` into windows of `window` tokens (and a rest, if it has two),
/// each read from its beginning behind `starts`, such as <s>; all tokens but
/// each window's first are foretold from those before them in the window (the
/// first, too, where there are `starts`). Windows decode together, as many as
/// the model's largest bucket has, over all pages of the cache. Errors: a
/// window with its starts is longer than the context, or than the pages that
/// there are for it; fewer than two tokens.
StatusOr<Perplexity> measurePerplexity(PagedModel &model,
                                       std::span<const int32_t> tokens,
                                       std::span<const int32_t> starts,
                                       int64_t window);

} // namespace tessera
