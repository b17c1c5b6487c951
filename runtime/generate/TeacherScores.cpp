#include "runtime/generate/TeacherScores.h"
#include "runtime/infer/TokenScores.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tessera {

/// Whether token `a` comes before `b`.
static auto byLogits(std::span<const float> logits) {
  return [logits](int32_t a, int32_t b) {
    const float x = logits[std::size_t(a)], y = logits[std::size_t(b)];
    return x > y || (x == y && a < b);
  };
}

/// A heap whose front is the last of the best tokens so far: most tokens cost
/// one comparison.
static void selectTop(std::span<const float> logits,
                      std::span<int32_t> tokens) {
  const auto isBefore = byLogits(logits);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = int32_t(i);
  std::ranges::make_heap(tokens, isBefore);
  for (std::size_t i = tokens.size(); i < logits.size(); ++i) {
    if (!isBefore(int32_t(i), tokens.front()))
      continue;
    std::ranges::pop_heap(tokens, isBefore);
    tokens.back() = int32_t(i);
    std::ranges::push_heap(tokens, isBefore);
  }
  std::ranges::sort_heap(tokens, isBefore);
}

bool topClasses(std::span<const float> logits, double temperature,
                std::span<int32_t> tokens, std::span<float> logProbs) {
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
    return false;
  selectTop(logits, tokens);
  const auto isBefore = byLogits(logits);
  const double most = logits[std::size_t(tokens.front())];
  const auto shifted = [&](std::size_t token) {
    return (double(logits[token]) - most) / temperature;
  };
  // Added up alone, since 1 minus the others' loses what is small.
  double others = 0, sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (isBefore(tokens.back(), int32_t(i)))
      others += std::exp(shifted(i));
  for (const int32_t token : tokens)
    sum += std::exp(shifted(std::size_t(token)));
  const double logSum = std::log(sum + others);
  const auto bounded = [](double logProb) {
    return float(std::clamp(logProb, double(kLeastLogProb), 0.0));
  };
  for (std::size_t i = 0; i < tokens.size(); ++i)
    logProbs[i] = bounded(shifted(std::size_t(tokens[i])) - logSum);
  logProbs[tokens.size()] = bounded(std::log(others) - logSum);
  return true;
}

namespace {
class TeacherPass final : public DocumentPass {
public:
  TeacherPass(std::string folder, PagedModel &model, const TeacherFacts &facts)
      : folder(std::move(folder)), model(model), facts(facts) {}

  Status remove(const std::string &shard) override {
    return removeTeacherShard(folder, shard);
  }
  Status begin(const std::string &shard, const PackedShard &of) override {
    auto created = TeacherWriter::create(folder, shard, of.header(), facts);
    if (!created.ok())
      return created.status();
    writer.emplace(created.take());
    return Status::success();
  }
  Status read(std::span<const ShardDocument> documents) override;
  Status finish() override { return writer->finish(); }

private:
  const std::string folder;
  PagedModel &model;
  const TeacherFacts facts;
  std::optional<TeacherWriter> writer; ///< of the shard
};
} // namespace

Status TeacherPass::read(std::span<const ShardDocument> documents) {
  const uint64_t first = documents.front().first, top = facts.top,
                 count = documents.back().first +
                         documents.back().tokens.size() - first;
  const ScoredDocuments scored(documents);
  // In a document's first record nothing is predicted.
  std::vector<int32_t> tokens(count * top, -1);
  std::vector<float> logProbs(count * (top + 1));
  bool isFinite = true;
  TESSERA_RETURN_IF_ERROR(readLogits(
      model, scored.tokens,
      [&](std::size_t document, int64_t at, std::span<const float> logits,
          std::optional<float>) {
        const uint64_t record =
            documents[document].first + uint64_t(at) - first;
        isFinite &= topClasses(
            logits, facts.temperature,
            std::span(tokens).subspan(record * top, top),
            std::span(logProbs).subspan(record * (top + 1), top + 1));
      },
      scored.prompts));
  return isFinite ? writer->add(tokens, logProbs) : noFiniteScores(documents);
}

Status scoreTeacher(const std::string &folder, PagedModel &model,
                    TeacherFacts facts, const ReportDocuments &report) {
  const int64_t vocab = model.shape().vocab;
  if (facts.top < 1 || int64_t(facts.top) > vocab)
    return Status::error("--top {}: the model has a vocabulary of {} tokens",
                         facts.top, vocab);
  facts.vocabSize = uint32_t(vocab);
  TeacherPass pass(folder, model, facts);
  return readDocuments(folder, model.shape(), pass, report);
}

} // namespace tessera
