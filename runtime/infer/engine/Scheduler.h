// Who is in the next step: iteration-level batching (Yu et al., Orca, 2022)
// over a paged cache, with prompts read in chunks between the steps of
// sequences that decode (Agrawal et al., Sarathi, 2023).
//
// One iteration reads at most one chunk of one prompt and then gives one token
// to every text that is read. First come, first served: the oldest text that
// waits is the next to have pages, and where pages run out the youngest text
// gives up its own and waits again; what it has is then computed once more. So
// the oldest always gets on, and no text depends on its neighbours for more
// than its time.
//
// A text whose next tokens are drafted has a row of the batch for each of them.
// A guess holds if it is the token that is chosen before it (Leviathan et al.
// 2023, with the text's own past as the draft), so what comes out is not only
// as likely as token by token, it is the same. A prompt whose own tokens are
// asked for their logprobs is read in the same rows, as drafts that all hold:
// a chunk has logits behind its last token alone.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/engine/EngineMetrics.h"
#include "runtime/infer/engine/PagePool.h"
#include "runtime/infer/engine/Request.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace tessera {

struct ScheduledSequence;

struct SchedulerOptions {
  /// Texts that have pages at a time; 0: the largest bucket, which is the most.
  int64_t maxBatch = 0;
  /// Tokens that may be chosen, from 0 on; 0: the whole vocabulary. (A
  /// vocabulary padded beyond the tokenizer's has tokens without text.)
  int64_t choices = 0;
  /// Tokens that are drafted of a text at a time and proven together with the
  /// next one (NgramDraft.h), as far as the largest bucket has room; 0: none.
  int64_t drafts = 0;
};

/// One thread at a time.
class Scheduler {
public:
  /// The model must outlive it.
  Scheduler(PagedModel &model, const SchedulerOptions &options);
  ~Scheduler();

  /// Whether the request could run if it were alone, and if not, why.
  static Status check(const EngineRequest &request, const DecoderShape &shape);
  /// Whether so many tokens of a prompt and after it fit the context: a part of
  /// check().
  static Status checkLength(int64_t prompt, int64_t tokens,
                            const DecoderShape &shape);

  /// Takes a request that check() has passed. Ids ascend.
  void add(uint64_t id, EngineRequest request, EngineClock::time_point arrived);
  /// Ends a request at once, if there is one with this id.
  void cancel(uint64_t id);
  void finishAll(FinishReason reason, const std::string &message);
  bool idle() const { return running.empty() && waiting.empty(); }
  /// Of prompts and to be generated, of all requests that it has.
  int64_t unfinishedTokens() const;

  /// One iteration. An error is the device's, of which nothing is to be
  /// expected any more: finishAll() is what is left to do.
  Status step();

  const EngineMetrics &metrics();

private:
  using Text = ScheduledSequence;
  using TextList = std::vector<std::unique_ptr<Text>>;

  void expire(EngineClock::time_point now);
  void admit(EngineClock::time_point now);
  bool givePages(Text &text);
  Status readChunk();
  Status prefill(Text &text);
  Status score(Text &text);
  Status decode();
  std::vector<Text *> decodable();
  void addDrafts(std::span<Text *const> sequences);
  bool takeRow(Text &text, int64_t row);
  void preemptYoungest();
  /// What a model is asked for of the rows of these sequences, a text's drafts'
  /// behind its own. Valid until the next call.
  Wanted wantedOf(std::span<Text *const> sequences);
  /// Chooses the token behind row `row`; the text may then be finished.
  void choose(Text &text, int64_t row);
  void finish(Text &text, FinishReason reason, const std::string &message = {});
  void sweep();

  PagedModel &model;
  SchedulerOptions options;
  PagePool pool;
  std::vector<TokenSampling> samplings;      ///< of an iteration
  TextList running;                          ///< oldest first
  std::deque<std::unique_ptr<Text>> waiting; ///< oldest first
  EngineMetrics counters;
};

} // namespace tessera
