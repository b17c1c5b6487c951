// Attention over pages: the same bits for a token whether it comes alone, with
// others in a batch or in a chunk of a prompt.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "runtime/support/Floats.h"
#include "test/support/RunKernels.h"
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

struct Sizes {
  int64_t heads, kvHeads, headDim, page, pages, window;
};

/// With `int8`, keys and values are so, and their scales arguments.
std::string programOf(const Sizes &s, bool int8, int64_t batch,
                      int64_t tokens) {
  auto kept = [&](int64_t width, const char *type) {
    return fmt::format("tensor<{}x{}x{}x{}x{}>", s.pages, s.page, s.kvHeads,
                       width, type);
  };
  std::string query = fmt::format("tensor<{}x{}x{}x{}xbf16>", batch, tokens,
                                  s.heads, s.headDim),
              cache = kept(s.headDim, "bf16"),
              table = fmt::format("tensor<{}x{}xi32>", batch, s.pages),
              counts = fmt::format("tensor<{}xi32>", batch),
              window = s.window
                           ? fmt::format("{{window = {} : i64}} ", s.window)
                           : "",
              arguments = fmt::format("%k: {0}, %v: {0}", cache), widened;
  if (int8) {
    arguments = fmt::format("%i: {0}, %j: {0}, %x: {1}, %y: {1}",
                            kept(s.headDim, "i8"), kept(1, "bf16"));
    for (const char *names : {"kix", "vjy"})
      widened += fmt::format(
          "  %{} = graph.dequantize_rows %{}, %{} : {}, {} -> {}\n", names[0],
          names[1], names[2], kept(s.headDim, "i8"), kept(1, "bf16"), cache);
  }
  return fmt::format(R"(
func.func @main(%q: {0}, %t: {2}, %s: {3}, %l: {3}, {5}) -> {0} {{
{6}
  %a = graph.paged_attention %q, %k, %v pages %t starts %s lengths %l scale 0.125 {4}: {0}, {1}, {2}, {3}
  return %a : {0}
}})",
                     query, cache, table, counts, window, arguments, widened);
}

void draw(Tensor &tensor, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  for (double &x : tensor.data)
    x = bf16ToFloat(floatToBf16(2 * normal(engine)));
}

/// Target, window, whether keys and values are int8, and a page's tokens.
using Param = std::tuple<std::string, int64_t, bool, int64_t>;

class PagedBitsTest : public ::testing::TestWithParam<Param> {
protected:
  void SetUp() override {
    if (std::string missing = cpu::missingFeatures(target()); !missing.empty())
      GTEST_SKIP() << "this processor lacks" << missing;
  }
  std::string target() const { return std::get<0>(GetParam()); }
  int64_t window() const { return std::get<1>(GetParam()); }
  bool int8() const { return std::get<2>(GetParam()); }
  int64_t page() const { return std::get<3>(GetParam()); }
  Tensors drawCache(const Sizes &s) const;
  Tensor run(const std::string &text, const Tensors &inputs) {
    return llvm::cantFail(
        programs.run(text, inputs, RunOptions{0, false, numerics}));
  }

  MainPrograms programs{target()};
  std::string numerics;
};

/// `queries` from position `first` on, of the sequence's `all`; those of a
/// batch are the same sequence, and each has a length of its own.
Tensors inputsOf(const Sizes &s, const Tensor &all, const Tensors &cache,
                 int64_t batch, int64_t first, int64_t tokens) {
  int64_t row = s.heads * s.headDim;
  Tensor query({batch, tokens, s.heads, s.headDim}), table({batch, s.pages}),
      starts({batch}), lengths({batch});
  for (int64_t i = 0; i < batch; ++i) {
    int64_t start = first + i * tokens;
    std::copy_n(all.data.begin() + start * row, tokens * row,
                query.data.begin() + i * tokens * row);
    for (int64_t page = 0; page < s.pages; ++page)
      table.data[i * s.pages + page] = double(s.pages - 1 - page);
    starts.data[i] = double(start);
    lengths.data[i] = double(start + tokens);
  }
  Tensors inputs{query, table, starts, lengths};
  inputs.insert(inputs.end(), cache.begin(), cache.end());
  return inputs;
}

// Keys and values; of integers then their scales.
Tensors PagedBitsTest::drawCache(const Sizes &s) const {
  Tensors cache(2, Tensor({s.pages, s.page, s.kvHeads, s.headDim}));
  draw(cache[0], 2);
  draw(cache[1], 3);
  if (!int8())
    return cache;
  for (Tensor &integers : cache)
    for (double &x : integers.data)
      x = std::clamp(std::nearbyint(x * 30), -127.0, 127.0);
  cache.resize(4, Tensor({s.pages, s.page, s.kvHeads, 1}));
  for (Tensor *scales : {&cache[2], &cache[3]}) {
    draw(*scales, 4);
    for (double &x : scales->data)
      x = bf16ToFloat(floatToBf16(float(std::abs(x) + 1) / 64));
  }
  return cache;
}

TEST_P(PagedBitsTest, AreTheSameAloneInABatchAndInAPrompt) {
  Sizes s{4, 2, 64, page(), 192 / page(), window()};
  int64_t total = s.page * s.pages, row = s.heads * s.headDim;
  Tensor all({total, s.heads, s.headDim});
  draw(all, 1);
  Tensors cache = drawCache(s);
  auto outputs = [&](int64_t batch, int64_t first, int64_t tokens) {
    return run(programOf(s, int8(), batch, tokens),
               inputsOf(s, all, cache, batch, first, tokens));
  };
  Tensor prompt;
  auto expectSame = [&](const Tensor &part, int64_t first) {
    for (size_t i = 0; i < part.data.size(); ++i)
      ASSERT_EQ(part.data[i], prompt.data[first * row + i])
          << "position " << first + i / row << ' ' << numerics;
  };
  for (const std::string &each : numericsOf(target())) {
    numerics = each;
    prompt = outputs(1, 0, total);
    for (int64_t first : {0, 1, 62, 63, 64, 127, 130, 191})
      expectSame(outputs(1, first, 1), first);
    expectSame(outputs(5, 60, 1), 60);
    expectSame(outputs(1, 37, 100), 37);
    expectSame(outputs(1, 90, 12), 90);
  }
}

class LongBitsTest : public PagedBitsTest {};

// On a GPU a long context is divided among blocks when it is read for one token
// at a time: by its length alone, whoever is beside the token.
TEST_P(LongBitsTest, AreTheSameAloneAndInABatch) {
  Sizes s{4, 2, 64, page(), 576 / page(), window()};
  Tensor all({s.page * s.pages, s.heads, s.headDim});
  draw(all, 1);
  Tensors cache = drawCache(s);
  auto outputs = [&](int64_t batch, int64_t first) {
    return run(programOf(s, int8(), batch, 1),
               inputsOf(s, all, cache, batch, first, 1));
  };
  auto expectSame = [&](int64_t first) {
    Tensor together = outputs(4, first);
    for (int64_t i = 0; i < 4; ++i) {
      Tensor alone = outputs(1, first + i);
      for (size_t at = 0; at < alone.data.size(); ++at)
        ASSERT_EQ(together.data[i * alone.data.size() + at], alone.data[at])
            << "position " << first + i << ' ' << numerics;
    }
  };
  for (const std::string &each : numericsOf(target())) {
    numerics = each;
    for (int64_t first : {254, 510})
      expectSame(first);
  }
}

std::string nameOf(const ::testing::TestParamInfo<Param> &info) {
  auto [target, window, int8, page] = info.param;
  return fmt::format("{}window{}page{}{}", target.substr(target.find(':') + 1),
                     window, page, int8 ? "int8" : "");
}

INSTANTIATE_TEST_SUITE_P(
    Targets, PagedBitsTest,
    ::testing::Combine(::testing::ValuesIn(cpuTargetNames()),
                       ::testing::Values(0, 70), ::testing::Bool(),
                       ::testing::Values(64)),
    nameOf);

// A tile of keys is a page, or several.
INSTANTIATE_TEST_SUITE_P(Emulated, PagedBitsTest,
                         ::testing::Values(Param{"cuda:sm_80", 0, false, 64},
                                           Param{"cuda:sm_80", 70, true, 64},
                                           Param{"cuda:sm_80", 41, false, 16},
                                           Param{"cuda:sm_90a", 70, false, 64},
                                           Param{"cuda:sm_90a", 0, true, 64}),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(Emulated, LongBitsTest,
                         ::testing::Values(Param{"cuda:sm_80", 0, false, 64},
                                           Param{"cuda:sm_90a", 0, true, 64}),
                         nameOf);

} // namespace
