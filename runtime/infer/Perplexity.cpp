#include "runtime/infer/Perplexity.h"
#include "runtime/infer/TokenScores.h"

#include <algorithm>
#include <cmath>

namespace tessera {

StatusOr<Perplexity> measurePerplexity(PagedModel &model,
                                       std::span<const int32_t> tokens,
                                       std::span<const int32_t> starts,
                                       int64_t window) {
  const DecoderShape &shape = model.shape();
  int64_t longest = window + int64_t(starts.size());
  if (window < 2 || longest > shape.context)
    return Status::error("windows of {} tokens after {} do not fit a context "
                         "of {}",
                         window, starts.size(), shape.context);
  if (tokens.size() < 2)
    return Status::error("a text of {} tokens has none to predict; give a "
                         "longer one",
                         tokens.size());
  if (shape.pages * shape.page < longest)
    return Status::error(
        "a KV cache of {} pages has no room for a window of {} "
        "tokens; raise inference.pages",
        shape.pages, longest);
  std::vector<std::vector<int32_t>> windows;
  for (size_t at = 0; at + 1 < tokens.size(); at += size_t(window)) {
    const auto part =
        tokens.subspan(at, std::min(size_t(window), tokens.size() - at));
    std::vector<int32_t> &made =
        windows.emplace_back(starts.begin(), starts.end());
    made.insert(made.end(), part.begin(), part.end());
  }
  const std::vector<std::span<const int32_t>> spans(windows.begin(),
                                                    windows.end());
  double sum = 0;
  int64_t count = 0;
  TESSERA_RETURN_IF_ERROR(
      scoreTokens(model, spans, [&](std::size_t, int64_t at, double score) {
        if (at < int64_t(starts.size()))
          return;
        sum -= score;
        ++count;
      }));
  return Perplexity{std::exp(sum / double(count)), count};
}

} // namespace tessera
