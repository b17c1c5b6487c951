// A model without weights: what stands in the cache for a token is a hash of
// it, of its adapter and of all that stands before it, and logits are hashes of
// all that. So a page that was written by another text or with another adapter,
// moved, or never filled shows in every token that follows. A state is a hash
// of all tokens, too, and differs if they were read in chunks instead of rows.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/Sampler.h"
#include "runtime/infer/engine/Request.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace tessera::testing {

inline DecoderShape shapeOf(int64_t pages) {
  DecoderShape shape;
  shape.context = 40;
  shape.page = 4;
  shape.pages = pages;
  shape.chunk = 6;
  shape.vocab = 61;
  shape.buckets = {1, 2, 4};
  shape.adapters = 2;
  return shape;
}

class FakeModel final : public PagedModel {
public:
  explicit FakeModel(DecoderShape given)
      : sizes(std::move(given)), cache(sizes.pages * sizes.page),
        states(size_t(sizes.states)),
        scores(sizes.buckets.back() * sizes.vocab) {}

  const DecoderShape &shape() const override { return sizes; }

  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &wanted) override {
    if (broken)
      return Status::error("the device is gone");
    if (tokens.empty() || int64_t(tokens.size()) > sizes.chunk)
      return Status::error("{} tokens in a chunk", tokens.size());
    CachedText at = text;
    // In a whole prompt every token knows all of them.
    uint64_t all = 0;
    if (sizes.hasWholePrompts && text.length == 0 && tokens.size() > 1)
      for (int32_t token : tokens)
        all = mix64(all + uint64_t(token) + 1);
    for (int32_t token : tokens) {
      write(at, token);
      if (sizes.states > 0)
        ++states.at(size_t(at.state)).hash;
      slot(at, at.length) += all;
      ++at.length;
    }
    score(at, 0);
    return answer(wanted, 1);
  }

  Status decode(std::span<const CachedText> sequences,
                std::span<const int32_t> tokens,
                const Wanted &wanted) override {
    if (broken)
      return Status::error("the device is gone");
    if (sequences.empty() || int64_t(sequences.size()) > sizes.buckets.back())
      return Status::error("{} sequences in a step", sequences.size());
    for (size_t i = 0; sizes.states > 0 && i < sequences.size(); ++i)
      for (const CachedText &other : sequences.first(i))
        if (other.state == sequences[i].state)
          return Status::error("two rows with state {}", other.state);
    for (size_t i = 0; i < sequences.size(); ++i)
      write(sequences[i], tokens[i]);
    for (size_t i = 0; i < sequences.size(); ++i) {
      CachedText grown = sequences[i];
      ++grown.length;
      score(grown, int64_t(i));
    }
    mostTogether = std::max(mostTogether, sequences.size());
    return answer(wanted, sequences.size());
  }

  std::span<const float> logits(int64_t i) const override {
    return std::span(scores).subspan(i * sizes.vocab, sizes.vocab);
  }
  int32_t token(int64_t i) const override { return chosen.at(size_t(i)); }

  size_t mostTogether = 0;
  int64_t answered = 0; ///< calls without logits
  std::atomic<bool> broken = false;

private:
  uint64_t &slot(const CachedText &text, int64_t position) {
    return cache.at(text.pages[position / sizes.page] * sizes.page +
                    position % sizes.page);
  }
  void write(const CachedText &text, int32_t token) {
    uint64_t before = text.length ? slot(text, text.length - 1) : 1;
    uint64_t adapter = uint64_t(text.adapter + 1) << 32;
    const uint64_t added = mix64(adapter + uint64_t(token) + 1);
    slot(text, text.length) = mix64(before + added);
    if (sizes.states == 0)
      return;
    State &state = states.at(size_t(text.state));
    if (text.length == 0)
      state = {};
    if (state.length++ != text.length) // of another sequence, or of more
      ++state.hash;
    state.hash = mix64(state.hash + added);
  }
  void score(const CachedText &text, int64_t row) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < text.length; ++i)
      sum = mix64(sum + slot(text, i));
    if (sizes.states > 0)
      sum = mix64(sum + states.at(size_t(text.state)).hash);
    for (int64_t i = 0; i < sizes.vocab; ++i)
      scores[row * sizes.vocab + i] =
          float(mix64(sum + uint64_t(i)) >> 40) * 0x1p-22f;
  }

  /// Chooses what is requested; logits that nobody wants are lost.
  Status answer(const Wanted &wanted, size_t rows) {
    if (!wanted.samplings.empty() && wanted.samplings.size() != rows)
      return Status::error("{} requests {} rows", wanted.samplings.size(),
                           rows);
    chosen.clear();
    for (const TokenSampling &sampling : wanted.samplings) {
      if (int64_t(sampling.changes.size()) > sizes.changes)
        return Status::error("{} changes", sampling.changes.size());
      auto row = logits(int64_t(chosen.size())).first(size_t(sampling.choices));
      std::vector<float> adjusted(row.begin(), row.end());
      adjustLogits(adjusted, sampling.changes, sampling.allowed);
      chosen.push_back(chooseToken(adjusted, sampling.choice));
    }
    answered += !wanted.logits;
    if (!wanted.logits)
      std::ranges::fill(scores, std::numeric_limits<float>::quiet_NaN());
    return Status::success();
  }

  struct State {
    int64_t length = 0;
    uint64_t hash = 0;
  };

  DecoderShape sizes;
  std::vector<int32_t> chosen;
  std::vector<uint64_t> cache;
  std::vector<State> states;
  std::vector<float> scores;
};

/// Collects what becomes of a request.
class Collected final : public RequestSink {
public:
  explicit Collected(int64_t enough = INT64_MAX) : enough(enough) {}
  void scored(std::size_t place, const TokenEvent &event) override {
    places.push_back(place);
    scores.push_back(event);
  }
  bool token(const TokenEvent &event) override {
    events.push_back(event);
    tokens.push_back(event.token);
    return int64_t(tokens.size()) < enough;
  }
  void finished(const EngineResult &given) override {
    ++ends;
    result = given;
    done = true;
  }

  std::vector<int32_t> tokens;
  std::vector<TokenEvent> events;
  std::vector<std::size_t> places; ///< of what was scored
  std::vector<TokenEvent> scores;
  EngineResult result;
  int ends = 0;
  std::atomic<bool> done = false; ///< for other threads

private:
  int64_t enough;
};

} // namespace tessera::testing
