// Speculative decoding with a draft model: a smaller model with the same
// vocabulary proposes the next tokens, and one step of the larger one verifies
// them (Leviathan et al. 2023; Chen et al. 2023).
//
// A draft token is drawn as the larger model would draw at that place: with the
// sampling parameters of the request and with the random number of that draw.
// So two models that agree on the distribution draw the same token, at any
// temperature, and what is accepted is by equality (Scheduler.h): the output is
// that without a draft model.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/infer/engine/DraftCounts.h"
#include "runtime/infer/engine/PagePool.h"
#include "runtime/infer/engine/Request.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct ScheduledSequence;

/// What the draft model has of a sequence.
struct DraftText {
  PageList list;
  std::vector<int32_t> tokens; ///< in its KV cache
  std::size_t agreed = 0;      ///< of these, known to be the sequence's
  std::vector<int32_t> drafts; ///< the last proposal
  DraftChance chance;
};

/// An error if the model cannot propose tokens of a model with `choices`
/// tokens: it must return to earlier tokens of a sequence.
Status checkDraftModel(const DecoderShape &shape, int64_t choices);

/// Not thread-safe.
class DraftModel {
public:
  /// Proposes for steps of at most `buckets.back()` rows. The model passes
  /// checkDraftModel() and must outlive it.
  DraftModel(PagedModel &model, int64_t choices, std::vector<int64_t> buckets,
             EngineClock::time_point (*now)());

  /// A sequence, and for how many drafts it has room.
  struct Turn {
    ScheduledSequence *sequence;
    int64_t room;
  };
  /// Sets the drafts of each sequence, as many as DraftCounts chooses: none if
  /// its prompt is still being read, or if pages, context or rows of the draft
  /// model are too few. Reads one chunk of one prompt at most. An error is one
  /// of the device.
  Status propose(std::vector<Turn> turns);
  /// How many of the sequence's drafts were accepted.
  void outcome(ScheduledSequence &sequence, int64_t accepted);
  /// The verifying step of so many rows has taken so long.
  void tookStep(int64_t rows, double seconds) {
    counts.tookStep(rows, seconds);
  }
  /// Of a sequence that ends or is preempted.
  void release(DraftText &text);

private:
  void align(ScheduledSequence &sequence);
  void limitRooms(std::vector<Turn> &turns);
  Status readChunk(std::span<const Turn> turns);
  void dropUnready(std::vector<Turn> &turns);
  Status step(std::span<const Turn> turns);
  Status decode(std::span<const Turn> turns, std::span<const CachedText> cached,
                std::span<const int32_t> tokens, std::span<const int64_t> rows);

  PagedModel &model;
  const int64_t choices;
  PagePool pool;
  DraftCounts counts;
  EngineClock::time_point (*now)();
  DraftChance usual; ///< of all sequences
};

} // namespace tessera
