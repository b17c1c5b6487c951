#include "runtime/infer/Decoder.h"

#include <algorithm>
#include <numeric>

namespace tessera {

StatusOr<std::unique_ptr<Decoder>> Decoder::create(hal::Session &session) {
  auto programs = DecodePrograms::create(session);
  if (!programs.ok())
    return programs.status();
  return std::make_unique<Decoder>(programs.take());
}

Decoder::Decoder(std::unique_ptr<PagedModel> model)
    : programs(std::move(model)) {
  unused.resize(shape().pages);
  std::iota(unused.rbegin(), unused.rend(), 0);
  unusedStates.resize(size_t(shape().states));
  std::iota(unusedStates.rbegin(), unusedStates.rend(), 0);
}

bool Decoder::hasRoom(const Sequence &sequence, int64_t count) const {
  int64_t tokens = sequence.tokens + count;
  int64_t more = (tokens + shape().page - 1) / shape().page -
                 int64_t(sequence.pages.size());
  return tokens <= shape().context && more <= freePages();
}

Status Decoder::noContext(int64_t tokens) const {
  return Status::error("a sequence of {} tokens is longer than the context of "
                       "{}; for a model directory, raise it by "
                       "--set inference.context=N, up to the model's own limit",
                       tokens, shape().context);
}

Status Decoder::reserve(Sequence &sequence, int64_t count) {
  int64_t tokens = sequence.tokens + count;
  if (tokens > shape().context)
    return noContext(tokens);
  if (!hasRoom(sequence, count))
    return Status::error("the KV cache has no page left for a sequence of {} "
                         "tokens; end another one, or raise inference.pages "
                         "when compiling (now {} pages of {} tokens)",
                         tokens, shape().pages, shape().page);
  if (shape().states > 0 && sequence.state < 0) {
    if (unusedStates.empty())
      return Status::error("all {} slots for recurrent states are used; end a "
                           "sequence, or raise inference.batch when compiling",
                           shape().states);
    sequence.state = unusedStates.back();
    unusedStates.pop_back();
  }
  while (int64_t(sequence.pages.size()) * shape().page < tokens) {
    sequence.pages.push_back(unused.back());
    unused.pop_back();
  }
  return Status::success();
}

// One more token for each sequence, or none for any.
Status Decoder::reserveAll(std::span<Sequence *const> sequences) {
  int64_t needed = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence &each = *sequences[i];
    if (std::ranges::count(sequences.first(i), sequences[i]))
      return Status::error("a step holds the same sequence twice");
    if (each.tokens + 1 > shape().context)
      return noContext(each.tokens + 1);
    needed += each.tokens == int64_t(each.pages.size()) * shape().page;
  }
  if (needed > freePages())
    return Status::error("the KV cache has {} pages left and {} sequences need "
                         "one each; end another one, or raise inference.pages "
                         "when compiling (now {} pages of {} tokens)",
                         freePages(), needed, shape().pages, shape().page);
  for (Sequence *each : sequences)
    TESSERA_RETURN_IF_ERROR(reserve(*each, 1));
  return Status::success();
}

void Decoder::truncate(Sequence &sequence, int64_t length) {
  if (length < sequence.tokens && !shape().reusesPrefixes())
    length = 0;
  sequence.tokens = std::clamp<int64_t>(length, 0, sequence.tokens);
  auto kept = size_t((sequence.tokens + shape().page - 1) / shape().page);
  while (sequence.pages.size() > kept) {
    unused.push_back(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

void Decoder::release(Sequence &sequence) {
  unused.insert(unused.end(), sequence.pages.rbegin(), sequence.pages.rend());
  sequence.pages.clear();
  sequence.tokens = 0;
  if (sequence.state >= 0)
    unusedStates.push_back(std::exchange(sequence.state, -1));
}

Status Decoder::read(Sequence &sequence, std::span<const int32_t> tokens,
                     const Wanted &wanted) {
  if (tokens.empty())
    return Status::error("no token to read");
  for (int32_t token : tokens)
    if (token < 0 || token >= shape().vocab)
      return Status::error("token {} is outside the vocabulary of {}", token,
                           shape().vocab);
  if (sequence.tokens == 0 && int64_t(tokens.size()) <= shape().context)
    TESSERA_RETURN_IF_ERROR(checkPrompt(int64_t(tokens.size()), shape()));
  TESSERA_RETURN_IF_ERROR(reserve(sequence, int64_t(tokens.size())));
  while (!tokens.empty()) {
    auto count = std::min<size_t>(tokens.size(), shape().chunk);
    TESSERA_RETURN_IF_ERROR(programs->prefill(
        cached(sequence), tokens.first(count),
        count == tokens.size() ? wanted : Wanted{.logits = false}));
    sequence.tokens += int64_t(count);
    tokens = tokens.subspan(count);
  }
  return Status::success();
}

Status Decoder::step(std::span<Sequence *const> sequences,
                     std::span<const int32_t> tokens, const Wanted &wanted) {
  if (int64_t(sequences.size()) <= shape().buckets.back())
    TESSERA_RETURN_IF_ERROR(reserveAll(sequences));
  std::vector<CachedText> rows;
  for (const Sequence *each : sequences)
    rows.push_back(cached(*each));
  TESSERA_RETURN_IF_ERROR(programs->decode(rows, tokens, wanted));
  for (Sequence *each : sequences)
    ++each->tokens;
  return Status::success();
}

StatusOr<int32_t> drawNext(const Decoder &decoder, Sampler &sampler,
                           int64_t choices, uint64_t draw,
                           const TokenMask *allowed,
                           const std::function<Status(const Wanted &)> &run) {
  auto sampling =
      sampler.sampling(decoder.shape().changes, choices, draw, allowed);
  if (!sampling) {
    TESSERA_RETURN_IF_ERROR(run({}));
    return sampler.sample(decoder.logits(0).first(size_t(choices)), draw,
                          allowed);
  }
  TESSERA_RETURN_IF_ERROR(run({.logits = false, .samplings = {&*sampling, 1}}));
  return sampledToken(decoder.token(0));
}

} // namespace tessera
