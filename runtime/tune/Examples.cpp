#include "runtime/tune/Examples.h"
#include "runtime/data/EmptyBatch.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace tessera::tune {
namespace {

//===--- reading ----------------------------------------------------------===//

/// The field's numbers, one for each token; null where it is not learned.
Status readReals(const JsonValue &value, const std::string &field,
                 const std::vector<bool> &isLearned, std::vector<float> &to) {
  if (value.elements().size() != isLearned.size())
    return Status::error("{} must be an array of {} numbers, one for each "
                         "token",
                         field, isLearned.size());
  for (std::size_t i = 0; i < isLearned.size(); ++i) {
    double number = 0;
    const JsonValue &element = value.elements()[i];
    const bool isMissing = element.isNull() && !isLearned[i];
    if (!isMissing && (!element.get(number) || !std::isfinite(float(number))))
      return Status::error("{}[{}] must be a number that fits fp32", field, i);
    to.push_back(float(number));
  }
  return Status::success();
}

Status readTokens(const JsonValue &value, const std::string &field,
                  const ExampleShape &shape, std::vector<int32_t> &tokens) {
  const auto &elements = value.elements();
  if (elements.size() < 2)
    return Status::error("{} must be an array of at least 2 tokens", field);
  // The last token is predicted and not read.
  if (int64_t(elements.size()) > shape.sequence + 1)
    return Status::error(
        "{} has {} tokens; this server's batches have room for "
        "{} (batch.sequence + 1)",
        field, elements.size(), shape.sequence + 1);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    int64_t token = -1;
    if (!elements[i].get(token) || token < 0 || token >= shape.vocabulary)
      return Status::error("{}[{}] must be a token from 0 to {}", field, i,
                           shape.vocabulary - 1);
    tokens.push_back(int32_t(token));
  }
  return Status::success();
}

Status readWeights(const JsonValue &value, const std::string &field,
                   Example &example) {
  example.isLearned.assign(example.tokens.size(), value.isNull());
  example.isLearned[0] = false;
  if (value.isNull())
    return Status::success();
  if (value.elements().size() != example.tokens.size())
    return Status::error("{} must be an array of {} numbers, one for each "
                         "token",
                         field, example.tokens.size());
  for (std::size_t i = 0; i < example.tokens.size(); ++i) {
    double weight = -1;
    if (!value.elements()[i].get(weight) || (weight != 0 && weight != 1))
      return Status::error("{}[{}] must be 0 or 1", field, i);
    example.isLearned[i] = weight == 1 && i > 0;
  }
  if (std::ranges::none_of(example.isLearned, std::identity()))
    return Status::error("{} has no 1 after the first token, so that nothing "
                         "is learned",
                         field);
  return Status::success();
}

Status readExample(const JsonValue &value, const std::string &field,
                   const ExampleShape &shape, Example &example) {
  if (!value.isObject())
    return Status::error("{} must be an object", field);
  struct Reals {
    const char *name;
    bool isNeeded;
    std::vector<float> *to;
  };
  const Reals reals[] = {
      {"logprobs", shape.inputs.samples, &example.logProbs},
      {"advantages", shape.inputs.samples, &example.advantages},
      {"reference_logprobs", shape.inputs.reference,
       &example.referenceLogProbs}};
  for (const auto &[name, member] : value.members()) {
    const auto found = std::ranges::find(
        reals, name, [](const Reals &each) { return each.name; });
    if (name != "tokens" && name != "weights" && found == std::end(reals))
      return Status::error("{} has an unknown field {}", field, quote(name));
    if (found != std::end(reals) && !found->isNeeded)
      return Status::error("{}.{} has no effect on this server's loss; leave "
                           "it out",
                           field, name);
  }
  TESSERA_RETURN_IF_ERROR(
      readTokens(value["tokens"], field + ".tokens", shape, example.tokens));
  TESSERA_RETURN_IF_ERROR(
      readWeights(value["weights"], field + ".weights", example));
  for (const Reals &each : reals)
    if (each.isNeeded)
      TESSERA_RETURN_IF_ERROR(readReals(value[each.name],
                                        fmt::format("{}.{}", field, each.name),
                                        example.isLearned, *each.to));
  return Status::success();
}

//===--- packing ----------------------------------------------------------===//

int64_t positionsOf(const Example &example) {
  return int64_t(example.tokens.size()) - 1;
}

/// `begin` is the offset in the row, `at` that in the batch.
void put(const Example &example, int32_t document, int64_t begin,
         std::size_t at, TokenBatchOut out) {
  for (std::size_t next = 1; next < example.tokens.size(); ++next, ++at) {
    out.tokens[at] = example.tokens[next - 1];
    if (!out.documentStarts.empty())
      out.documentStarts[at] = int32_t(begin);
    if (!out.documentNumbers.empty())
      out.documentNumbers[at] = document;
    if (!example.isLearned[next])
      continue;
    out.targets[at] = example.tokens[next];
    const auto set = [&](std::span<float> to, const std::vector<float> &from) {
      if (!to.empty() && !from.empty())
        to[at] = from[next];
    };
    set(out.behavior, example.logProbs);
    set(out.reference, example.referenceLogProbs);
    set(out.advantages, example.advantages);
  }
}

} // namespace

StatusOr<std::vector<Example>> readExamples(const JsonValue &examples,
                                            const ExampleShape &shape) {
  if (examples.elements().empty())
    return Status::error("examples must be an array that is not empty");
  std::vector<Example> read(examples.elements().size());
  for (std::size_t i = 0; i < read.size(); ++i)
    TESSERA_RETURN_IF_ERROR(readExample(examples.elements()[i],
                                        fmt::format("examples[{}]", i), shape,
                                        read[i]));
  return read;
}

StatusOr<PackedExamples>
PackedExamples::pack(const std::vector<Example> &examples,
                     const ExampleShape &shape) {
  std::vector<const Example *> order;
  for (const Example &example : examples)
    order.push_back(&example);
  // Longest first; of one length in the order of the request.
  std::ranges::sort(order, [](const Example *a, const Example *b) {
    return std::pair(-positionsOf(*a), a) < std::pair(-positionsOf(*b), b);
  });
  PackedExamples packed(shape);
  for (const Example *example : order) {
    const int64_t positions = positionsOf(*example);
    auto row = std::ranges::find_if(packed.rows, [&](const Row &row) {
      return row.used + positions <= shape.sequence &&
             int64_t(row.examples.size()) < shape.documents;
    });
    if (row == packed.rows.end() && packed.rows.size() == kMostRows)
      return Status::error("examples take more than {} rows of {} tokens; send "
                           "them in several requests",
                           kMostRows, shape.sequence);
    if (row == packed.rows.end())
      row = packed.rows.insert(packed.rows.end(), Row());
    row->examples.push_back(example);
    row->used += positions;
  }
  return packed;
}

std::size_t PackedExamples::batches() const {
  const auto each = std::size_t(shape.rows);
  return (rows.size() + each - 1) / each;
}

TokenBuffers PackedExamples::batch(std::size_t index) const {
  TokenBuffers batch(std::size_t(shape.rows * shape.sequence), shape.inputs);
  clearBatch(batch.out());
  const std::size_t first = index * std::size_t(shape.rows);
  std::vector<int64_t> used(std::size_t(shape.rows));
  for (std::size_t i = 0; i < used.size() && first + i < rows.size(); ++i) {
    int32_t document = 0;
    for (const Example *example : rows[first + i].examples) {
      put(*example, document++, used[i],
          i * std::size_t(shape.sequence) + std::size_t(used[i]), batch.out());
      used[i] += positionsOf(*example);
    }
  }
  startPadding(used, shape.sequence, batch.out());
  return batch;
}

} // namespace tessera::tune
