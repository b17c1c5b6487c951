// How many tokens a draft model proposes: as many as give the most tokens a
// second, by how often the drafts of each sequence were accepted and by how
// long the steps of both models took.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// The chance that the next draft is accepted, of a sequence or of all.
class DraftChance {
public:
  /// `usual`: before anything is known of the sequence, and what it returns to
  /// while it has no drafts. Most pairs of models have more than the default.
  explicit DraftChance(double usual = 0.6) : usual(usual), chance(usual) {}
  double next() const { return chance; }
  /// Of `drafted` tokens of a step so many were accepted, up to the first that
  /// was not.
  void outcome(int64_t drafted, int64_t accepted);

private:
  double usual, chance;
};

class DraftCounts {
public:
  /// `buckets`: the rows that a step can have, ascending.
  explicit DraftCounts(std::vector<int64_t> buckets);

  struct Candidate {
    double chance;
    int64_t room; ///< drafts at most
  };
  /// Drafts of each of the sequences, which are in one step with a row each and
  /// one more for each draft.
  std::vector<int64_t> choose(std::span<const Candidate> sequences) const;

  /// Seconds of a step of the model with so many rows.
  void tookStep(int64_t rows, double seconds);
  /// Seconds in which the draft model drafted at most `count` tokens of each
  /// sequence.
  void tookDrafts(int64_t count, double seconds);

private:
  std::size_t bucketOf(int64_t rows) const;

  std::vector<int64_t> buckets;
  std::vector<double> steps; ///< seconds, by bucket; 0: none was seen
  double draft = 0;
};

} // namespace tessera
