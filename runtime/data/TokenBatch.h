// What a training program reads of a batch: numbers of [rows, T] tokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera {

/// What a program reads of documents.
struct DocumentInputs {
  bool starts = false;    ///< tokens see only those of their document
  bool numbers = false;   ///< the loss is of whole documents
  bool reference = false; ///< it compares with a reference model
  bool samples = false;   ///< it is of sampled answers: behavior and advantages
  bool values = false;    ///< instead of advantages: rewards and values
  bool labels = false;    ///< it is of labelled answers
  /// It is of so many tokens of a teacher for each of a batch; 0: of none.
  uint16_t teacher = 0;
};

/// Views of one batch.
template <typename Number> struct TokenBatchOf {
  using Real = std::conditional_t<std::is_const_v<Number>, const float, float>;

  std::span<Number> tokens;
  std::span<Number> targets; ///< ignoredTarget: adds nothing to the loss
  /// Where in its row the document of a token begins. Empty if tokens see all
  /// earlier ones of their row.
  std::span<Number> documentStarts = {};
  /// The number of its document in its row, ignoredTarget in padding. Empty if
  /// the loss does not depend on it.
  std::span<Number> documentNumbers = {};
  /// The log-probability of the target by the reference model, 0 where it is
  /// ignored. Empty without one.
  std::span<Real> reference = {};
  /// The log-probability of the target by the policy that sampled it, and the
  /// advantage of its answer; what they are where the target is ignored does
  /// not matter. Empty if the loss is not of samples.
  std::span<Real> behavior = {}, advantages = {};
  /// Of the token's document: 1 if it is desirable, -1 if it is not, 0 if it
  /// has no label, and in padding. Empty if the loss is not of labels.
  std::span<Number> documentLabels = {};
  /// Of each token the K most probable next ones by a teacher, ignoredTarget
  /// where the target is ignored, and K + 1 log-probabilities: theirs and that
  /// of all others together. Empty without a teacher.
  std::span<Number> teacherTokens = {};
  std::span<Real> teacherLogProbs = {};
  /// Instead of advantages: what the token earned, of an answer at its last
  /// one; and what the value head expected before the step. Empty if the loss
  /// estimates none.
  std::span<Real> rewards = {}, values = {};

  /// The same views from element `first` on.
  TokenBatchOf part(std::size_t first, std::size_t count) const {
    const auto of = [&](auto view) {
      const std::size_t width =
          tokens.empty() ? 1 : view.size() / tokens.size();
      return view.empty() ? view : view.subspan(first * width, count * width);
    };
    return {of(tokens),          of(targets),        of(documentStarts),
            of(documentNumbers), of(reference),      of(behavior),
            of(advantages),      of(documentLabels), of(teacherTokens),
            of(teacherLogProbs), of(rewards),        of(values)};
  }
};
using TokenBatch = TokenBatchOf<const int32_t>;
using TokenBatchOut = TokenBatchOf<int32_t>;

/// Memory of a batch.
struct TokenBuffers {
  std::vector<int32_t> tokens, targets, documentStarts, documentNumbers,
      documentLabels, teacherTokens;
  std::vector<float> reference, behavior, advantages, teacherLogProbs, rewards,
      values;

  TokenBuffers() = default;
  /// All zero, with what a program reads of documents.
  TokenBuffers(std::size_t count, DocumentInputs documents)
      : tokens(count), targets(count),
        documentStarts(documents.starts ? count : 0),
        documentNumbers(documents.numbers ? count : 0),
        documentLabels(documents.labels ? count : 0),
        teacherTokens(count * documents.teacher),
        reference(documents.reference ? count : 0),
        behavior(documents.samples ? count : 0),
        advantages(documents.samples && !documents.values ? count : 0),
        teacherLogProbs(documents.teacher ? count * (documents.teacher + 1)
                                          : 0),
        rewards(documents.values ? count : 0),
        values(documents.values ? count : 0) {}
  TokenBatchOut out() {
    return {tokens,        targets,         documentStarts, documentNumbers,
            reference,     behavior,        advantages,     documentLabels,
            teacherTokens, teacherLogProbs, rewards,        values};
  }
  TokenBatch view() const {
    return {tokens,        targets,         documentStarts, documentNumbers,
            reference,     behavior,        advantages,     documentLabels,
            teacherTokens, teacherLogProbs, rewards,        values};
  }
};

} // namespace tessera
