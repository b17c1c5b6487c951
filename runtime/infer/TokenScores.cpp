#include "runtime/infer/TokenScores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {

double logSumOf(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits)
    sum += std::exp(double(logit) - most);
  return most + std::log(sum);
}

static double logProbability(std::span<const float> logits,
                             std::optional<float> logSum, int32_t token) {
  if (logSum) // in floats, as programs subtract
    return double(logits[std::size_t(token)] - *logSum);
  return double(logits[std::size_t(token)]) - logSumOf(logits);
}

namespace {
using Tokens = std::span<const int32_t>;

/// Sequences of a model with states, one row each: the tokens of one sequence
/// are computed after each other.
class RecurrentScorer {
public:
  RecurrentScorer(PagedModel &model, std::span<const Tokens> sequences,
                  const TakeLogits &take)
      : model(model), sequences(sequences), take(take),
        unusedPages(std::size_t(model.shape().pages)) {
    std::iota(unusedPages.rbegin(), unusedPages.rend(), 0);
    const auto rows =
        std::min(model.shape().states, model.shape().buckets.back());
    unusedStates.resize(std::size_t(rows));
    std::iota(unusedStates.rbegin(), unusedStates.rend(), 0);
  }

  Status run() {
    while (true) {
      start();
      if (rows.empty())
        return Status::success();
      TESSERA_RETURN_IF_ERROR(step());
    }
  }

private:
  struct Row {
    std::size_t sequence;
    int32_t state;
    std::vector<int32_t> pages;
    int64_t at = 0; ///< token to read
  };

  void start() {
    const int64_t page = model.shape().page;
    for (; next < sequences.size() && !unusedStates.empty(); ++next) {
      // The last token is predicted, not read.
      const auto read = int64_t(sequences[next].size()) - 1;
      if (read < 1)
        continue;
      const auto pages = std::size_t((read + page - 1) / page);
      if (pages > unusedPages.size())
        return;
      rows.push_back({next,
                      unusedStates.back(),
                      {unusedPages.end() - long(pages), unusedPages.end()}});
      unusedPages.resize(unusedPages.size() - pages);
      unusedStates.pop_back();
    }
  }

  Status step() {
    std::vector<CachedText> inputs;
    std::vector<int32_t> fed;
    for (const Row &each : rows) {
      inputs.push_back({each.pages, each.at, -1, each.state});
      fed.push_back(sequences[each.sequence][std::size_t(each.at)]);
    }
    TESSERA_RETURN_IF_ERROR(model.decode(inputs, fed, {}));
    for (std::size_t row = 0; row < rows.size(); ++row)
      take(rows[row].sequence, ++rows[row].at, model.logits(int64_t(row)),
           model.logSum(int64_t(row)));
    std::erase_if(rows, [&](const Row &row) { return release(row); });
    return Status::success();
  }

  /// If the row has nothing to read any more.
  bool release(const Row &row) {
    if (row.at + 1 < int64_t(sequences[row.sequence].size()))
      return false;
    unusedPages.insert(unusedPages.end(), row.pages.begin(), row.pages.end());
    unusedStates.push_back(row.state);
    return true;
  }

  PagedModel &model;
  std::span<const Tokens> sequences;
  const TakeLogits &take;
  std::vector<int32_t> unusedPages, unusedStates;
  std::vector<Row> rows;
  std::size_t next = 0; ///< sequence to start
};

/// The tokens of sequences in order, several of a sequence in one step.
class Scorer {
public:
  Scorer(PagedModel &model, std::span<const Tokens> sequences,
         const TakeLogits &take, std::span<const int64_t> prompts)
      : model(model), sequences(sequences), take(take), prompts(prompts),
        unused(std::size_t(model.shape().pages)), tables(sequences.size()) {
    std::iota(unused.rbegin(), unused.rend(), 0);
  }

  Status run() {
    while (next < sequences.size()) {
      TESSERA_RETURN_IF_ERROR(readPrompt());
      collect();
      TESSERA_RETURN_IF_ERROR(step());
    }
    return Status::success();
  }

private:
  struct Entry {
    std::size_t sequence;
    int64_t at;
  };

  int64_t pagesOf(std::size_t sequence) const {
    // The last token is predicted, not read.
    const auto read =
        std::max<int64_t>(int64_t(sequences[sequence].size()) - 1, 0);
    return (read + model.shape().page - 1) / model.shape().page;
  }

  bool startsPrompt() const {
    return model.shape().hasWholePrompts && position == 0 && prompts[next] > 1;
  }

  /// Gives the next sequence its pages, if there are as many.
  bool reserve() {
    std::vector<int32_t> &table = tables[next];
    const auto pages = std::size_t(pagesOf(next));
    if (!table.empty())
      return true;
    if (unused.size() < pages)
      return false;
    table.assign(unused.end() - long(pages), unused.end());
    unused.resize(unused.size() - pages);
    return true;
  }

  void release(std::size_t sequence) {
    std::vector<int32_t> &table = tables[sequence];
    unused.insert(unused.end(), table.begin(), table.end());
    table = {};
  }

  /// Reads the next sequence's prompt, if its tokens see each other. No step is
  /// in progress: its pages are free.
  Status readPrompt() {
    if (!startsPrompt())
      return Status::success();
    const Tokens tokens = sequences[next];
    const auto count = prompts[next];
    if (count >= int64_t(tokens.size())) { // nothing to predict after it
      ++next;
      return Status::success();
    }
    if (!reserve())
      return Status::success();
    TESSERA_RETURN_IF_ERROR(
        model.prefill({tables[next], 0}, tokens.first(size_t(count)), {}));
    take(next, count, model.logits(0), model.logSum(0));
    position = count;
    if (position + 1 == int64_t(tokens.size()))
      release(next);
    return Status::success();
  }

  /// The entries of a step: tokens in order, as long as there are pages.
  void collect() {
    entries.clear();
    const auto most = std::size_t(model.shape().buckets.back());
    while (next < sequences.size() && entries.size() < most) {
      const auto readable = int64_t(sequences[next].size()) - 1;
      if (position >= readable) {
        ++next, position = 0;
        continue;
      }
      if (startsPrompt() || !reserve())
        return;
      entries.push_back({next, position++});
    }
  }

  Status step() {
    if (entries.empty())
      return Status::success(); // what was left has nothing to predict
    std::vector<CachedText> inputs;
    std::vector<int32_t> fed;
    for (const Entry &each : entries) {
      inputs.push_back({tables[each.sequence], each.at});
      fed.push_back(sequences[each.sequence][std::size_t(each.at)]);
    }
    TESSERA_RETURN_IF_ERROR(model.decode(inputs, fed, {}));
    for (std::size_t row = 0; row < entries.size(); ++row) {
      const auto [sequence, at] = entries[row];
      take(sequence, at + 1, model.logits(int64_t(row)),
           model.logSum(int64_t(row)));
      if (at + 2 == int64_t(sequences[sequence].size()))
        release(sequence);
    }
    return Status::success();
  }

  PagedModel &model;
  std::span<const Tokens> sequences;
  const TakeLogits &take;
  std::span<const int64_t> prompts;
  std::vector<int32_t> unused;              ///< free pages
  std::vector<std::vector<int32_t>> tables; ///< of sequences in progress
  std::vector<Entry> entries;               ///< of a step
  std::size_t next = 0;                     ///< sequence to read from
  int64_t position = 0;                     ///< its token to read
};
} // namespace

Status scoreTokens(PagedModel &model, std::span<const Tokens> sequences,
                   const TakeScore &take, std::span<const int64_t> prompts) {
  return readLogits(
      model, sequences,
      [&](std::size_t sequence, int64_t at, std::span<const float> logits,
          std::optional<float> logSum) {
        take(sequence, at,
             logProbability(logits, logSum, sequences[sequence][size_t(at)]));
      },
      prompts);
}

Status readLogits(PagedModel &model, std::span<const Tokens> sequences,
                  const TakeLogits &take, std::span<const int64_t> prompts) {
  const DecoderShape &shape = model.shape();
  if (shape.hasWholePrompts && prompts.size() != sequences.size())
    return Status::error("the tokens of a text without a prompt cannot be "
                         "scored with attention.prompts: bidirectional; leave "
                         "that key out");
  const int64_t most = std::min(shape.context, shape.pages * shape.page);
  for (const Tokens tokens : sequences)
    if (int64_t(tokens.size()) - 1 > most)
      return Status::error("a sequence of {} tokens does not fit a context of "
                           "{} in a KV cache of {} pages; raise "
                           "inference.context or inference.pages",
                           tokens.size(), shape.context, shape.pages);
  if (shape.hasWholePrompts)
    for (size_t i = 0; i < prompts.size(); ++i)
      if (prompts[i] < int64_t(sequences[i].size()))
        TESSERA_RETURN_IF_ERROR(checkPrompt(prompts[i], shape));
  if (shape.states > 0)
    return RecurrentScorer(model, sequences, take).run();
  return Scorer(model, sequences, take, prompts).run();
}

} // namespace tessera
