// Chooses the sequences of each step: continuous batching (iteration-level
// scheduling: Yu et al., Orca, 2022) over a paged KV cache, with chunked
// prefill between decode steps (Agrawal et al., Sarathi, 2023).
//
// One iteration computes at most one chunk of one prompt, then one token for
// every sequence whose prompt is computed. The next sequence to get pages is of
// the most urgent priority, then one that was preempted, then of the tenant
// that has had least, then the oldest. If pages run out, the least urgent
// sequence is preempted, of these the youngest: it releases its pages and
// waits, and its tokens are recomputed later. So is one that a more urgent
// sequence waits for. The oldest of the most urgent always makes progress, and
// a sequence's neighbours affect nothing but its latency.
//
// A sequence with draft tokens has a row of the batch for each of them. A draft
// is accepted if it equals the token chosen before it, so the output is not
// only as likely as without drafts, it is the same. Drafts are of a draft model
// or, without one, from the sequence's own past. A prompt that is scored by
// logprobs is computed in such rows too, as drafts that are always accepted: a
// prefill chunk has logits after its last token only.
//
// A model with recurrent layers has a state for each running sequence, which is
// of all its tokens. So it has neither drafts nor a prefix cache, and a prompt
// is scored token by token.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/engine/DraftModel.h"
#include "runtime/infer/engine/EngineMetrics.h"
#include "runtime/infer/engine/PagePool.h"
#include "runtime/infer/engine/Request.h"
#include "runtime/infer/engine/TenantShares.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace tessera {

struct ScheduledSequence;

struct SchedulerOptions {
  /// Most running sequences; 0: the largest bucket, which is the maximum.
  int64_t maxBatch = 0;
  /// Tokens that may be chosen, from 0 on; 0: the whole vocabulary. (A
  /// vocabulary padded beyond the tokenizer's has ids without a token.)
  int64_t choices = 0;
  /// Draft tokens of a sequence that one step verifies, as far as the largest
  /// bucket has room; 0: none, and so for models with states.
  int64_t drafts = 0;
  /// Proposes them, and passes checkDraftModel(); null: prompt lookup does
  /// (NgramDraft.h). It must outlive the scheduler.
  PagedModel *draft = nullptr;
  /// The clock of both models' steps, by which drafts are worth their time.
  EngineClock::time_point (*now)() = EngineClock::now;
};

/// Not thread-safe.
class Scheduler {
public:
  /// The model must outlive it.
  Scheduler(PagedModel &model, const SchedulerOptions &options);
  ~Scheduler();

  /// Adds a request that has passed checkRequest(). Ids ascend.
  void add(uint64_t id, EngineRequest request, EngineClock::time_point arrived);
  /// Ends a request at once, if there is one with this id.
  void cancel(uint64_t id);
  void finishAll(FinishReason reason, const std::string &message);
  bool idle() const { return running.empty() && waiting.empty(); }
  /// Tokens of prompts and still to be generated, of all its requests.
  int64_t unfinishedTokens() const;

  /// One iteration. An error is one of the device, after which only finishAll()
  /// is useful.
  Status step();

  const EngineMetrics &metrics();

private:
  using Sequence = ScheduledSequence;
  using SequenceList = std::vector<std::unique_ptr<Sequence>>;

  void expire(EngineClock::time_point now);
  void admit(EngineClock::time_point now);
  /// The waiting sequence to be admitted next; there is one.
  std::deque<std::unique_ptr<Sequence>>::iterator nextWaiting();
  /// Whether the sequence may run now, after those that are less urgent were
  /// preempted.
  bool makeRoom(Sequence &sequence);
  void start(Sequence &sequence, EngineClock::time_point now);
  /// Those it needs besides the ones of its cached prefix.
  int64_t missingPages(const Sequence &sequence) const;
  bool givePages(Sequence &sequence);
  /// Of a sequence that ends or is preempted: its pages and its state.
  void releaseMemory(Sequence &sequence);
  void publish(Sequence &sequence);
  Status readChunk();
  Status prefill(Sequence &sequence);
  bool isReadInRows(const Sequence &sequence) const;
  /// Appends tokens as decoding does, and reports the scores of prompts: many
  /// of one sequence, or one of each.
  Status readRows(std::span<Sequence *const> sequences);
  /// Of these the rows [first, first + count) of one sequence.
  void tookRows(Sequence &sequence, int64_t first, int64_t count);
  Status decode();
  std::vector<Sequence *> decodable();
  Status addDrafts(std::span<Sequence *const> sequences);
  void lookUpDrafts(std::span<Sequence *const> sequences);
  /// Drafts at most, of so many rows that are free.
  static int64_t roomFor(const Sequence &sequence, int64_t rows);
  bool takeRow(Sequence &sequence, int64_t row);
  void preemptLast();
  /// What to request from the model for the rows of these sequences; a
  /// sequence's drafts follow its own row. Valid until the next call.
  Wanted requestRows(std::span<Sequence *const> sequences);
  TokenLogprobs logprobs(int64_t row, int32_t token, int64_t top) const;
  /// Chooses the token after row `row`; the sequence may then be finished.
  void choose(Sequence &sequence, int64_t row);
  void finish(Sequence &sequence, FinishReason reason,
              const std::string &message = {});
  void sweep();

  PagedModel &model;
  SchedulerOptions options;
  PagePool pool;
  std::optional<DraftModel> drafts;
  /// Slots for the states of sequences; as many as can run, or none.
  std::vector<int32_t> unusedStates;
  std::vector<TokenSampling> samplings; ///< of an iteration
  SequenceList running;                 ///< by Sequence::precedes
  std::deque<std::unique_ptr<Sequence>> waiting;
  TenantShares shares;
  EngineMetrics counters;
};

} // namespace tessera
