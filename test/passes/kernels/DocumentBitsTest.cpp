// Attention of packed documents on CPUs: the same bits, gradients too, for a
// document wherever it is in a row, alone in one, and in a prompt.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "runtime/support/Floats.h"
#include "test/support/RunKernels.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

constexpr int64_t kTokens = 320, kPage = 64, kHeads = 4, kKvHeads = 2,
                  kHeadDim = 24;

struct Document {
  int64_t row, begin, length;
  /// Its first tokens, which see each other where there are prompts.
  Document prompt() const { return {row, begin, (length + 1) / 2}; }
};

std::string queryType(int64_t rows, const char *type) {
  return fmt::format("tensor<{}x{}x{}x{}x{}>", rows, kTokens, kHeads, kHeadDim,
                     type);
}
std::string keyType(int64_t rows, const char *type) {
  return fmt::format("tensor<{}x{}x{}x{}x{}>", rows, kTokens, kKvHeads,
                     kHeadDim, type);
}
std::string windowText(int64_t window) {
  return window ? fmt::format(", window = {} : i64", window) : "";
}

/// Result 0 is the output, 1 to 3 are the gradients of query, key and value for
/// a cotangent %d.
/// With prompts, %l has the last key of each query's.
std::string packedText(int64_t rows, const char *type, int64_t window,
                       bool prompts, int64_t result) {
  const std::string q = queryType(rows, type), k = keyType(rows, type),
                    lse = fmt::format("tensor<{}x{}x{}xf32>", rows, kHeads,
                                      kTokens),
                    first = fmt::format("tensor<{}x{}xi32>", rows, kTokens),
                    last = prompts ? fmt::format("last %l : {} ", first) : "",
                    mask = fmt::format("first %f : {} {}scale 0.2 {{causal{}}}",
                                       first, last, windowText(window));
  return fmt::format(
      R"(
func.func @main(%q: {0}, %k: {1}, %v: {1}, %d: {0}, %f: {3}{7}) -> {6} {{
  %a:2 = graph.attention %q, %k, %v {4} : {0}, {1}, {1} -> {0}, {2}
  %g:3 = graph.attention_grad %q, %k, %v, %a#0, %a#1, %d {4} : {0}, {1}, {1}, {0}, {2}, {0}
  return {5} : {6}
}})",
      q, k, lse, first, mask,
      result ? fmt::format("%g#{}", result - 1) : "%a#0", result < 2 ? q : k,
      prompts ? fmt::format(", %l: {}", first) : "");
}

std::string promptText(const char *type, int64_t window) {
  return fmt::format(
      R"(
func.func @main(%q: {0}, %t: {2}, %s: tensor<1xi32>, %l: tensor<1xi32>, %k: {1}, %v: {1}) -> {0} {{
  %a = graph.paged_attention %q, %k, %v pages %t starts %s lengths %l scale 0.2 {{keep_f32{3}}} : {0}, {1}, {2}, tensor<1xi32>
  return %a : {0}
}})",
      queryType(1, type),
      fmt::format("tensor<{}x{}x{}x{}x{}>", kTokens / kPage, kPage, kKvHeads,
                  kHeadDim, type),
      fmt::format("tensor<1x{}xi32>", kTokens / kPage), windowText(window));
}

/// Documents of 1 to 200 tokens in rows, as many as fit.
std::vector<Document> drawDocuments(int64_t rows, std::mt19937_64 &engine) {
  std::uniform_int_distribution<int64_t> isShort(0, 1), few(1, 20),
      many(21, 200);
  std::vector<Document> documents;
  for (int64_t row = 0, begin = 0; row < rows; ++row, begin = 0)
    while (begin < kTokens) {
      int64_t length = isShort(engine) ? few(engine) : many(engine);
      length = std::min(length, kTokens - begin);
      documents.push_back({row, begin, length});
      begin += length;
    }
  return documents;
}

class Batch {
public:
  Batch(int64_t rows, int64_t heads)
      : values({rows, kTokens, heads, kHeadDim}), width(heads * kHeadDim) {}

  std::span<double> of(const Document &at) {
    return std::span(values.data)
        .subspan((at.row * kTokens + at.begin) * width, at.length * width);
  }
  void copy(Batch &from, const Document &source, const Document &target) {
    std::ranges::copy(from.of(source), of(target).begin());
  }
  Tensor values;

private:
  int64_t width;
};

Batch draw(int64_t rows, int64_t heads, unsigned seed) {
  Batch batch(rows, heads);
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  for (double &x : batch.values.data)
    x = bf16ToFloat(floatToBf16(2 * normal(engine)));
  return batch;
}

Tensor firstOf(int64_t rows, const std::vector<Document> &documents) {
  Tensor first({rows, kTokens});
  for (const Document &each : documents)
    for (int64_t t = each.begin; t < kTokens; ++t)
      first.data[each.row * kTokens + t] = double(each.begin);
  return first;
}

Tensor lastOf(int64_t rows, const std::vector<Document> &documents) {
  Tensor last({rows, kTokens});
  for (const Document &each : documents)
    for (int64_t t = each.begin; t < kTokens; ++t)
      last.data[each.row * kTokens + t] =
          double(each.begin + each.prompt().length - 1);
  return last;
}

using Param = std::tuple<std::string, const char *, int64_t, bool>;

class DocumentBitsTest : public ::testing::TestWithParam<Param> {
protected:
  void SetUp() override {
    const std::string &target = std::get<0>(GetParam());
    if (std::string missing = cpu::missingFeatures(target); !missing.empty())
      GTEST_SKIP() << "this processor lacks" << missing;
  }
};

TEST_P(DocumentBitsTest, AreTheSameInAnyPackingAndInAPrompt) {
  const auto &[target, type, window, prompts] = GetParam();
  constexpr int64_t kRows = 2;
  std::mt19937_64 engine(7);
  const std::vector<Document> packed = drawDocuments(kRows, engine);
  const auto count = int64_t(packed.size());
  std::vector<Document> alone;
  for (int64_t i = 0; i < count; ++i)
    alone.push_back({i, 0, packed[i].length});

  // Query, key, value and cotangent of both layouts.
  std::vector<Batch> many, single;
  for (int64_t heads : {kHeads, kKvHeads, kKvHeads, kHeads}) {
    many.push_back(draw(kRows, heads, many.size() + 1));
    single.push_back(draw(count, heads, many.size() + 10));
    for (int64_t i = 0; i < count; ++i)
      single.back().copy(many.back(), packed[i], alone[i]);
  }
  // Tokens after a document in its row are a document of their own.
  std::vector<Document> rest = alone;
  for (int64_t i = 0; i < count; ++i)
    if (alone[i].length < kTokens)
      rest.push_back({i, alone[i].length, 1});
  auto inputsOf = [&, prompts = prompts](std::vector<Batch> &from, int64_t rows,
                                         const std::vector<Document> &of) {
    Tensors inputs;
    for (Batch &each : from)
      inputs.push_back(each.values);
    inputs.push_back(firstOf(rows, of));
    if (prompts)
      inputs.push_back(lastOf(rows, of));
    return inputs;
  };
  MainPrograms programs(target);
  Batch outputs(kRows, kHeads);
  for (int64_t result = 0; result < 4; ++result) {
    const int64_t heads = result < 2 ? kHeads : kKvHeads;
    Batch one(kRows, heads), other(count, heads);
    one.values = llvm::cantFail(
        programs.run(packedText(kRows, type, window, prompts, result),
                     inputsOf(many, kRows, packed)));
    other.values = llvm::cantFail(
        programs.run(packedText(count, type, window, prompts, result),
                     inputsOf(single, count, rest)));
    for (int64_t i = 0; i < count; ++i)
      ASSERT_TRUE(std::ranges::equal(one.of(packed[i]), other.of(alone[i])))
          << "result " << result << ", tokens " << packed[i].length << " at "
          << packed[i].begin;
    if (result == 0)
      outputs = one;
  }

  if (prompts && window) // which inference refuses
    return;
  constexpr int64_t kPages = kTokens / kPage;
  Tensor table({1, kPages}), start({1}), length({1});
  std::iota(table.data.begin(), table.data.end(), 0);
  for (int64_t i = 0; i < count; ++i) {
    // A prompt is read from positions after all keys (models/BuildInference).
    const Document text = prompts ? packed[i].prompt() : packed[i],
                   whole{0, 0, text.length};
    std::vector<Batch> prompt;
    for (int64_t operand = 0; operand < 3; ++operand) {
      prompt.emplace_back(1, operand ? kKvHeads : kHeads);
      prompt.back().copy(many[operand], text, whole);
      if (operand)
        prompt.back().values.shape = {kPages, kPage, kKvHeads, kHeadDim};
    }
    length.data[0] = double(text.length);
    start.data[0] = prompts ? length.data[0] : 0;
    Batch found(1, kHeads);
    found.values = llvm::cantFail(programs.run(
        promptText(type, window), {prompt[0].values, table, start, length,
                                   prompt[1].values, prompt[2].values}));
    ASSERT_TRUE(std::ranges::equal(found.of(whole), outputs.of(text)))
        << "in a prompt, tokens " << text.length << " at " << packed[i].begin;
  }
}

std::string nameOf(const ::testing::TestParamInfo<Param> &info) {
  const auto &[target, type, window, prompts] = info.param;
  return fmt::format("{}{}window{}{}", target.substr(target.find(':') + 1),
                     type, window, prompts ? "Prompts" : "");
}

INSTANTIATE_TEST_SUITE_P(
    Targets, DocumentBitsTest,
    ::testing::Combine(::testing::ValuesIn(cpuTargetNames()),
                       ::testing::Values("f32", "bf16"),
                       ::testing::Values(0, 70), ::testing::Bool()),
    nameOf);

} // namespace
