#include "runtime/infer/engine/DraftModel.h"
#include "runtime/infer/engine/ScheduledSequence.h"

#include <algorithm>

namespace tessera {
namespace {

// Tokens that a text may lack before it is read in a chunk: the last draft and
// the token after it, if all drafts were accepted.
constexpr int64_t kMostRows = 2;

int64_t lacking(const DraftModel::Turn &turn) {
  const ScheduledSequence &sequence = *turn.sequence;
  return int64_t(sequence.tokens.size() - sequence.drafted.tokens.size());
}

/// Tokens before the last one.
int64_t textEnd(const DraftModel::Turn &turn) {
  return int64_t(turn.sequence->tokens.size()) - 1;
}

/// The draw of its next draft.
uint64_t drawOf(const ScheduledSequence &sequence) {
  return uint64_t(sequence.result.generatedTokens) +
         sequence.drafted.drafts.size();
}

} // namespace

Status checkDraftModel(const DecoderShape &shape, int64_t choices) {
  if (!shape.reusesPrefixes())
    return Status::error("its {}, and cannot return from a token that is "
                         "refused",
                         shape.states > 0
                             ? "layers are recurrent"
                             : "prompts are read whole "
                               "(attention.prompts: bidirectional)");
  if (shape.vocab < choices)
    return Status::error("it has a vocabulary of {} tokens, and the model "
                         "chooses among {}",
                         shape.vocab, choices);
  return Status::success();
}

DraftModel::DraftModel(PagedModel &model, int64_t choices,
                       std::vector<int64_t> buckets,
                       EngineClock::time_point (*now)())
    : model(model), choices(choices),
      pool(model.shape().pages, model.shape().page), counts(std::move(buckets)),
      now(now) {}

void DraftModel::release(DraftText &text) {
  pool.release(text.list);
  text.tokens.clear();
  text.agreed = 0;
}

void DraftModel::outcome(ScheduledSequence &sequence, int64_t accepted) {
  const auto drafted = int64_t(sequence.drafts.size());
  sequence.drafted.chance.outcome(drafted, accepted);
  usual.outcome(drafted, accepted);
}

// At least the last token is computed again, for what follows it.
void DraftModel::align(ScheduledSequence &sequence) {
  DraftText &text = sequence.drafted;
  text.drafts.clear();
  const std::span<const int32_t> known =
      std::span(sequence.tokens).first(sequence.tokens.size() - 1);
  if (text.list.pages.empty()) {
    text.chance = DraftChance(usual.next());
    const int64_t found = pool.takePrefix(known, text.list);
    text.tokens.assign(known.begin(), known.begin() + found);
    text.agreed = std::size_t(found);
  }
  const auto end =
      std::ranges::mismatch(std::span(text.tokens).subspan(text.agreed),
                            known.subspan(text.agreed))
          .in1;
  text.agreed = std::size_t(end.base() - text.tokens.data());
  text.tokens.resize(text.agreed);
  pool.publish(text.list, text.tokens);
}

// As many drafts as are worth it, where the draft model has context and pages.
void DraftModel::limitRooms(std::vector<Turn> &turns) {
  std::vector<DraftCounts::Candidate> candidates;
  for (const Turn &turn : turns)
    // The last draft is not appended.
    candidates.push_back(
        {turn.sequence->drafted.chance.next(),
         std::min(turn.room, model.shape().context - textEnd(turn))});
  const std::vector<int64_t> chosen = counts.choose(candidates);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    PageList &list = turns[i].sequence->drafted.list;
    const bool fits =
        chosen[i] > 0 && pool.grow(list, textEnd(turns[i]) + chosen[i]);
    turns[i].room = fits ? chosen[i] : 0;
  }
}

// One chunk of a text that is to have drafts: the tokens before the last one,
// which step() reads.
Status DraftModel::readChunk(std::span<const Turn> turns) {
  for (const Turn &turn : turns) {
    if (turn.room == 0 || lacking(turn) <= kMostRows)
      continue;
    DraftText &text = turn.sequence->drafted;
    const auto begin = int64_t(text.tokens.size());
    const int64_t count = std::min(lacking(turn) - 1, model.shape().chunk);
    const auto tokens = std::span(turn.sequence->tokens)
                            .subspan(std::size_t(begin), std::size_t(count));
    text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
    return model.prefill({text.list.pages, begin}, tokens, {.logits = false});
  }
  return Status::success();
}

// Sequences of which too much is not read, or for which no rows are left.
void DraftModel::dropUnready(std::vector<Turn> &turns) {
  int64_t rows = model.shape().buckets.back();
  for (Turn &turn : turns) {
    if (lacking(turn) > std::min(kMostRows, rows))
      turn.room = 0;
    rows -= turn.room > 0 ? lacking(turn) : 0;
  }
}

// A model that samples needs no logits on the host.
Status DraftModel::decode(std::span<const Turn> turns,
                          std::span<const CachedText> cached,
                          std::span<const int32_t> tokens,
                          std::span<const int64_t> rows) {
  std::vector<TokenSampling> samplings(cached.size(), {.choices = choices});
  bool isSampled = true;
  for (std::size_t i = 0; i < turns.size() && isSampled; ++i) {
    auto sampling = turns[i].sequence->sampler.sampling(
        model.shape().changes, choices, drawOf(*turns[i].sequence));
    isSampled = sampling.has_value();
    if (isSampled)
      samplings[std::size_t(rows[i])] = *sampling;
  }
  if (!isSampled)
    samplings.clear();
  TESSERA_RETURN_IF_ERROR(model.decode(
      cached, tokens, {.logits = !isSampled, .samplings = samplings}));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    ScheduledSequence &sequence = *turns[i].sequence;
    const auto token =
        isSampled ? sampledToken(model.token(rows[i]))
                  : sequence.sampler.sample(
                        model.logits(rows[i]).first(std::size_t(choices)),
                        drawOf(sequence));
    // Logits that give no token are those of a draft, and end nothing.
    if (token.ok())
      sequence.drafted.drafts.push_back(*token);
  }
  return Status::success();
}

Status DraftModel::step(std::span<const Turn> turns) {
  std::vector<CachedText> cached;
  std::vector<int32_t> tokens;
  std::vector<int64_t> rows;
  for (const Turn &turn : turns) {
    DraftText &text = turn.sequence->drafted;
    auto append = [&](int32_t token) {
      cached.push_back({text.list.pages, int64_t(text.tokens.size())});
      text.tokens.push_back(token);
      tokens.push_back(token);
    };
    const std::vector<int32_t> &own = turn.sequence->tokens;
    if (text.drafts.empty())
      while (text.tokens.size() < own.size())
        append(own[text.tokens.size()]);
    else
      append(text.drafts.back());
    rows.push_back(int64_t(tokens.size()) - 1);
  }
  return decode(turns, cached, tokens, rows);
}

Status DraftModel::propose(std::vector<Turn> turns) {
  for (const Turn &turn : turns)
    align(*turn.sequence);
  limitRooms(turns);
  TESSERA_RETURN_IF_ERROR(readChunk(turns));
  dropUnready(turns);
  const auto before = now();
  std::size_t count = 0;
  for (std::vector<Turn> left = turns;; ++count) {
    std::erase_if(left, [&](const Turn &turn) {
      return int64_t(count) >= turn.room ||
             turn.sequence->drafted.drafts.size() < count;
    });
    if (left.empty())
      break;
    TESSERA_RETURN_IF_ERROR(step(left));
  }
  counts.tookDrafts(int64_t(count), secondsOf(now() - before));
  for (const Turn &turn : turns)
    turn.sequence->drafts = turn.sequence->drafted.drafts;
  return Status::success();
}

} // namespace tessera
