#include "runtime/infer/Perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

/// -log of the probability that `logits` give to `token`.
double surprise(std::span<const float> logits, int32_t token) {
  double most = *std::ranges::max_element(logits), sum = 0;
  for (float logit : logits)
    sum += std::exp(double(logit) - most);
  return std::log(sum) + most - double(logits[token]);
}

/// Windows that decode together, one token of each at a time.
class Windows {
public:
  Windows(PagedModel &model, std::span<const int32_t> starts)
      : model(model), starts(starts) {}

  /// Adds to `sum` and `count`; windows[0] is the longest.
  Status run(std::span<const std::span<const int32_t>> windows, double &sum,
             int64_t &count) {
    const DecoderShape &shape = model.shape();
    const auto ahead = int64_t(starts.size());
    int64_t longest = ahead + int64_t(windows[0].size());
    int64_t perWindow = (longest + shape.page - 1) / shape.page;
    std::vector<int32_t> pages(perWindow * windows.size());
    std::iota(pages.begin(), pages.end(), 0);
    std::vector<CachedText> sequences(windows.size());
    for (size_t i = 0; i < sequences.size(); ++i)
      sequences[i].pages = std::span(pages).subspan(i * perWindow, perWindow);
    auto tokenAt = [&](size_t i, int64_t at) {
      return at < ahead ? starts[at] : windows[i][at - ahead];
    };
    std::vector<int32_t> fed;
    for (int64_t at = 0; at + 1 < longest; ++at) {
      // Shorter windows come last and finish first.
      size_t open = windows.size();
      while (at + 1 >= ahead + int64_t(windows[open - 1].size()))
        --open;
      fed.clear();
      for (size_t i = 0; i < open; ++i)
        fed.push_back(tokenAt(i, at));
      TESSERA_RETURN_IF_ERROR(
          model.decode(std::span(sequences).first(open), fed, {}));
      for (size_t i = 0; i < open; ++i) {
        ++sequences[i].length;
        if (at + 1 < ahead)
          continue;
        sum += surprise(model.logits(int64_t(i)), tokenAt(i, at + 1));
        ++count;
      }
    }
    return Status::success();
  }

private:
  PagedModel &model;
  std::span<const int32_t> starts;
};

} // namespace

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
  int64_t perWindow = (longest + shape.page - 1) / shape.page;
  int64_t together = std::min(shape.buckets.back(), shape.pages / perWindow);
  if (together < 1)
    return Status::error(
        "a KV cache of {} pages has no room for a window of {} "
        "tokens; raise inference.pages",
        shape.pages, longest);
  std::vector<std::span<const int32_t>> windows;
  for (size_t at = 0; at + 1 < tokens.size(); at += size_t(window))
    windows.push_back(
        tokens.subspan(at, std::min(size_t(window), tokens.size() - at)));
  double sum = 0;
  int64_t count = 0;
  for (size_t first = 0; first < windows.size(); first += size_t(together))
    TESSERA_RETURN_IF_ERROR(
        Windows(model, starts)
            .run(std::span(windows).subspan(
                     first, std::min(size_t(together), windows.size() - first)),
                 sum, count));
  return Perplexity{std::exp(sum / double(count)), count};
}

} // namespace tessera
