// An iteration: the rows that the model computes, and the tokens chosen from
// them.
#include "runtime/infer/engine/ScheduledSequence.h"
#include "runtime/infer/engine/Scheduler.h"

#include <algorithm>

namespace tessera {

Status Scheduler::step() {
  auto now = EngineClock::now();
  expire(now);
  admit(now);
  TESSERA_RETURN_IF_ERROR(readChunk());
  TESSERA_RETURN_IF_ERROR(decode());
  sweep();
  ++counters.iterations;
  return Status::success();
}

// The state after a chunk of a prompt is that after its tokens one by one but
// for rounding. So a preempted sequence is recomputed as it was computed.
bool Scheduler::isReadInRows(const Sequence &sequence) const {
  if (model.shape().states == 0)
    return sequence.scores();
  // One last token of a prompt is decoded, not prefilled.
  return sequence.request.scoresPrompt ||
         sequence.computed + 1 >= sequence.result.promptTokens;
}

// One prompt of each kind: reading in rows is limited to a batch, and must not
// delay others. A row of each sequence if one has only one.
Status Scheduler::readChunk() {
  for (bool inRows : {false, true}) {
    std::vector<Sequence *> found;
    const size_t most = inRows && model.shape().states > 0
                            ? size_t(model.shape().buckets.back())
                            : 1;
    for (const auto &each : running)
      if (each->unread() > 1 && isReadInRows(*each) == inRows &&
          found.size() < most)
        found.push_back(each.get());
    if (found.empty())
      continue;
    TESSERA_RETURN_IF_ERROR(inRows ? readRows(found) : prefill(*found[0]));
    for (Sequence *each : found)
      if (!each->finished && !each->generates() && each->toRead() == 0)
        finish(*each, FinishReason::length);
    sweep();
  }
  return Status::success();
}

/// Lets later sequences find the tokens that are computed.
void Scheduler::publish(Sequence &sequence) {
  if (model.shape().reusesPrefixes())
    pool.publish(sequence.list,
                 std::span(sequence.tokens).first(size_t(sequence.computed)));
}

Status Scheduler::prefill(Sequence &sequence) {
  const DecoderShape &shape = model.shape();
  const int64_t prompt = sequence.result.promptTokens - sequence.computed;
  int64_t most = shape.chunk;
  if (shape.hasWholePrompts && sequence.computed == 0)
    most = prompt;
  else if (shape.states > 0)
    most = std::min(most, prompt);
  int64_t count = std::min(sequence.toRead(), most);
  bool last = count == sequence.unread();
  Sequence *one[] = {&sequence};
  sequence.drafts = {};
  TESSERA_RETURN_IF_ERROR(model.prefill(
      sequence.cached(sequence.computed),
      std::span(sequence.tokens).subspan(sequence.computed, count),
      last ? requestRows(one) : Wanted{.logits = false}));
  sequence.computed += count;
  counters.lastComputed = EngineClock::now();
  publish(sequence);
  if (last)
    choose(sequence, 0);
  return Status::success();
}

// Rows of one call are computed side by side, and a state after each other: a
// sequence with a state has one row.
Status Scheduler::readRows(std::span<Sequence *const> sequences) {
  const int64_t most =
      model.shape().states > 0 ? 1 : model.shape().buckets.back();
  std::vector<CachedText> cached;
  std::vector<int32_t> tokens;
  std::vector<int64_t> counts;
  for (const Sequence *each : sequences) {
    counts.push_back(std::min(each->toRead(), most));
    for (int64_t at = each->computed; at < each->computed + counts.back();
         ++at) {
      cached.push_back(each->cached(at));
      tokens.push_back(each->tokens[size_t(at)]);
    }
  }
  TESSERA_RETURN_IF_ERROR(model.decode(cached, tokens, {}));
  counters.lastComputed = EngineClock::now();
  int64_t row = 0;
  for (size_t i = 0; i < sequences.size(); row += counts[i++])
    tookRows(*sequences[i], row, counts[i]);
  return Status::success();
}

void Scheduler::tookRows(Sequence &sequence, int64_t first, int64_t count) {
  const int64_t begin = sequence.computed;
  const bool last = count == sequence.unread();
  sequence.isSampled = false;
  sequence.computed += count;
  publish(sequence);
  for (int64_t row = 0; row < count && sequence.scores(); ++row) {
    int64_t position = begin + row + 1; // the token that the row predicts
    if (position != sequence.scored)
      continue; // reported before it was preempted
    TokenEvent event;
    event.token = sequence.tokens[std::size_t(position)];
    event.logprobs =
        logprobs(first + row, event.token, *sequence.request.logprobs);
    sequence.request.sink->scored(std::size_t(position), event);
    ++sequence.scored;
  }
  if (last)
    choose(sequence, first + count - 1);
}

std::vector<Scheduler::Sequence *> Scheduler::decodable() {
  std::vector<Sequence *> sequences;
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence &sequence = *running[i];
    if (sequence.unread() > 1)
      continue;
    while (i < running.size() &&
           !pool.grow(sequence.list, int64_t(sequence.tokens.size())))
      preemptLast(); // maybe this one
    if (i < running.size())
      sequences.push_back(&sequence);
  }
  return sequences;
}

// An accepted draft is followed by another token, which maxTokens must allow.
int64_t Scheduler::roomFor(const Sequence &sequence, int64_t rows) {
  return std::min(rows, sequence.request.maxTokens -
                            sequence.result.generatedTokens - 1);
}

// The free rows are divided among the remaining sequences.
void Scheduler::lookUpDrafts(std::span<Sequence *const> sequences) {
  int64_t rows = model.shape().buckets.back() - int64_t(sequences.size());
  auto left = int64_t(sequences.size());
  for (Sequence *sequence : sequences) {
    sequence->drafts = sequence->draft.propose(
        sequence->tokens, roomFor(*sequence, (rows + left - 1) / left));
    --left;
    rows -= int64_t(sequence->drafts.size());
  }
}

// Drafts never take pages or rows that another sequence needs now.
Status Scheduler::addDrafts(std::span<Sequence *const> sequences) {
  if (drafts) {
    std::vector<DraftModel::Turn> turns;
    for (Sequence *each : sequences)
      turns.push_back({each, roomFor(*each, options.drafts)});
    TESSERA_RETURN_IF_ERROR(drafts->propose(std::move(turns)));
  } else {
    lookUpDrafts(sequences);
  }
  for (Sequence *each : sequences)
    if (!pool.grow(each->list,
                   int64_t(each->tokens.size() + each->drafts.size())))
      each->drafts = {};
  return Status::success();
}

/// Chooses the token after row `row`; returns whether the sequence goes on.
bool Scheduler::takeRow(Sequence &sequence, int64_t row) {
  ++sequence.computed;
  publish(sequence);
  choose(sequence, row);
  return !sequence.finished;
}

// Tokens that the model cannot sample are drawn from logits. An output is read
// as a whole, so then the logits of all sequences are read.
Wanted Scheduler::requestRows(std::span<Sequence *const> sequences) {
  samplings.clear();
  bool isAny = false, needsLogits = false;
  for (Sequence *sequence : sequences) {
    size_t before = samplings.size();
    sequence->isSampled = sequence->addSamplings(model.shape().changes,
                                                 options.choices, samplings);
    isAny |= sequence->isSampled;
    needsLogits |=
        !sequence->isSampled || sequence->request.logprobs.has_value();
    samplings.resize(before + sequence->drafts.size() + 1,
                     TokenSampling{.choices = options.choices});
  }
  return {.logits = needsLogits,
          .samplings = isAny ? std::span<const TokenSampling>(samplings)
                             : std::span<const TokenSampling>()};
}

Status Scheduler::decode() {
  std::vector<Sequence *> sequences = decodable();
  if (sequences.empty())
    return Status::success();
  TESSERA_RETURN_IF_ERROR(addDrafts(sequences));
  std::vector<CachedText> cached;
  std::vector<int32_t> tokens;
  for (const Sequence *sequence : sequences) {
    cached.push_back(sequence->cached(sequence->computed));
    tokens.push_back(sequence->tokens.back());
    for (int32_t drafted : sequence->drafts) {
      cached.push_back(sequence->cached(cached.back().length + 1));
      tokens.push_back(drafted);
    }
  }
  const auto before = options.now();
  TESSERA_RETURN_IF_ERROR(model.decode(cached, tokens, requestRows(sequences)));
  if (drafts)
    drafts->tookStep(int64_t(tokens.size()), secondsOf(options.now() - before));
  counters.lastComputed = EngineClock::now();
  int64_t row = 0;
  for (Sequence *sequence : sequences) {
    int64_t first = row, held = 0;
    auto drafted = int64_t(sequence->drafts.size());
    row += drafted + 1;
    while (takeRow(*sequence, first + held) && held < drafted &&
           sequence->tokens.back() == sequence->drafts[size_t(held)])
      ++held;
    counters.draftTokens += uint64_t(drafted);
    counters.acceptedTokens += uint64_t(held);
    if (drafts)
      drafts->outcome(*sequence, held);
    else if (drafted > 0)
      sequence->draft.outcome(held);
  }
  return Status::success();
}

TokenLogprobs Scheduler::logprobs(int64_t row, int32_t token,
                                  int64_t top) const {
  // The model's sum is over all of its logits.
  const bool isWhole = options.choices == model.shape().vocab;
  return logprobsOf(model.logits(row).first(size_t(options.choices)), token,
                    top, isWhole ? model.logSum(row) : std::nullopt);
}

// The only function that gives a sequence a token.
void Scheduler::choose(Sequence &sequence, int64_t row) {
  if (sequence.isComplete()) // the only output is the empty string
    return finish(sequence, FinishReason::stop);
  FinishReason failure;
  StatusOr<int32_t> token = sequence.draw(model, row, options.choices, failure);
  if (!token.ok())
    return finish(sequence, failure, token.message());
  auto now = EngineClock::now();
  if (!sequence.first) {
    sequence.first = now;
    counters.firstToken.add(secondsOf(now - sequence.arrived));
    counters.prefill.add(secondsOf(now - *sequence.started));
  } else {
    counters.interToken.add(secondsOf(now - *sequence.last));
  }
  sequence.last = now;
  ++counters.generatedTokens;
  shares.charge(sequence.request.tenant, kGeneratedCost);
  ++sequence.result.generatedTokens;
  TokenEvent event;
  event.token = *token;
  event.isStop = sequence.stopsAt(*token);
  if (sequence.request.logprobs)
    event.logprobs = logprobs(row, *token, *sequence.request.logprobs);
  bool more = sequence.request.sink->token(event);
  if (!more || event.isStop || sequence.isComplete())
    return finish(sequence, FinishReason::stop);
  if (sequence.result.generatedTokens == sequence.request.maxTokens)
    finish(sequence, FinishReason::length);
}

} // namespace tessera
