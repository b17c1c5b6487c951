// Composites, by their decomposition, against direct loops.
#include "mlir/IR/Verifier.h"
#include "test/support/GraphTesting.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::testing;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void expectClose(const Tensor &actual, const Tensor &expected,
                 double tolerance = 1e-12) {
  ASSERT_EQ(ArrayRef(actual.shape), ArrayRef(expected.shape));
  for (int64_t i = 0; i < actual.size(); ++i)
    if (actual.data[i] != expected.data[i])
      ASSERT_NEAR(actual.data[i], expected.data[i],
                  tolerance * (1 + std::abs(expected.data[i])))
          << "element " << i;
}

TEST(GraphDecomposition, Softmax) {
  Tensor x({3, 4}, {1, 2, 3, 4, -kInfinity, -kInfinity, -kInfinity, -kInfinity,
                    0, -kInfinity, 0, -kInfinity});
  Tensor y =
      evaluate(
          "func.func @f(%x: tensor<3x4xf64>) -> tensor<3x4xf64> { %y = "
          "graph.softmax %x : tensor<3x4xf64> return %y : tensor<3x4xf64> }",
          {x})
          .at(0);
  double sum = std::exp(1) + std::exp(2) + std::exp(3) + std::exp(4);
  expectClose(y, Tensor({3, 4}, {std::exp(1) / sum, std::exp(2) / sum,
                                 std::exp(3) / sum, std::exp(4) / sum, 0, 0, 0,
                                 0, 0.5, 0, 0.5, 0}));
}

TEST(GraphDecomposition, QuantizeRows) {
  // Halves, either sign, a row of zeros, and one whose scale is no number.
  Tensor x({4, 4}, {127, 2.5, -2.5, 0.49, 1, -2, 0.01, -0.003, 0, 0, 0, 0,
                    1e-43, 0, 0, -1e-44});
  std::vector<Tensor> y =
      evaluate("func.func @f(%x: tensor<4x4xf32>) -> (tensor<4x4xi8>, "
               "tensor<4x1xf32>) { %v, %s = graph.quantize_rows %x : "
               "tensor<4x4xf32> -> tensor<4x4xi8>, tensor<4x1xf32> return %v, "
               "%s : tensor<4x4xi8>, tensor<4x1xf32> }",
               {x});
  expectClose(y.at(0), Tensor({4, 4}, {127, 3, -3, 0, 64, -127, 1, 0, 0, 0, 0,
                                       0, 0, 0, 0, 0}));
  expectClose(y.at(1), Tensor({4, 1}, {1, 2. / 127, 0, 1e-43 / 127}), 1e-6);
}

// One chunk, whole chunks, and several of which the last is short. What other
// segments contain does not matter.
TEST(GraphDecomposition, DiscountedSumIsAScanFromTheEnd) {
  for (int64_t n : {1, 5, 64, 65, 128, 700})
    for (double discount : {0.0, 0.75, 1.0}) {
      Tensor x = draw({3, n}, 7), segments({3, n}), expected = x;
      std::mt19937 random(static_cast<unsigned>(n));
      for (int64_t at = 1; at < 3 * n; ++at)
        segments.data[at] =
            at % n == 0 ? 0 : segments.data[at - 1] + (random() % 90 == 0);
      for (int64_t at = 3 * n - 2; at >= 0; --at)
        if (at % n != n - 1 && segments.data[at] == segments.data[at + 1])
          expected.data[at] += discount * expected.data[at + 1];
      // A segment of its own at the end of the first row.
      if (n > 1) {
        segments.data[n - 1] += 1;
        for (int64_t at = n - 2; at >= 0; --at)
          expected.data[at] =
              x.data[at] + (segments.data[at] == segments.data[at + 1]
                                ? discount * expected.data[at + 1]
                                : 0);
      }
      x.data[n - 1] = expected.data[n - 1] = kInfinity;
      expectClose(
          evaluate(
              llvm::formatv("func.func @f(%x: tensor<3x{0}xf64>, %s: "
                            "tensor<3x{0}xi32>) -> tensor<3x{0}xf64> {{ %y = "
                            "graph.discounted_sum %x, %s discount {1:f2} : "
                            "tensor<3x{0}xf64>, tensor<3x{0}xi32> return %y : "
                            "tensor<3x{0}xf64> }",
                            n, discount),
              {x, segments})
              .at(0),
          expected);
    }
}

// Exact to the last bit of each sum in f32, where sums of all are large.
TEST(GraphDecomposition, SegmentSum) {
  for (int64_t n : {1, 5, 256}) {
    Tensor x = draw({2, n}, 9, -100, 0), y({2, n, n});
    x.data[0] = -1000;
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t s = 0; s < n; ++s) {
        double sum = 0;
        for (int64_t l = s; l < n; ++l) {
          sum += l > s ? std::max(x.at({row, l}), -128.0) : 0;
          y.at({row, l, s}) = sum;
        }
      }
    expectClose(evaluate(llvm::formatv("func.func @f(%x: tensor<2x{0}xf64>) -> "
                                       "tensor<2x{0}x{0}xf64> {{ %y = "
                                       "graph.segment_sum %x : "
                                       "tensor<2x{0}xf64> -> "
                                       "tensor<2x{0}x{0}xf64> return %y : "
                                       "tensor<2x{0}x{0}xf64> }",
                                       n),
                         {x})
                    .at(0),
                y);
  }
}

// The recurrence, token by token: results, then the last states.
Tensors scanned(const Tensor &x, const Tensor &step, const Tensor &rate,
                const Tensor &write, const Tensor &read, const Tensor &skip,
                const Tensor &bias, const std::vector<double> &first,
                const std::vector<double> &counts, const Tensor *initial) {
  const int64_t batch = x.shape[0], tokens = x.shape[1], heads = x.shape[2],
                width = x.shape[3], groups = write.shape[2],
                state = write.shape[3];
  Tensor y(x.shape), last({batch, heads, width, state});
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h / (heads / groups);
      std::vector<double> s(size_t(width * state));
      if (initial)
        for (int64_t i = 0; i < width * state; ++i)
          s[size_t(i)] = initial->at({b, h, i / state, i % state});
      for (int64_t t = 0; t < tokens; ++t) {
        if (!first.empty() && first[size_t(b * tokens + t)] == double(t))
          std::fill(s.begin(), s.end(), 0);
        double d = std::log1p(std::exp(step.at({b, t, h}) + bias.at({h})));
        d = std::clamp(d, 0.2, 3.0);
        if (!counts.empty() && double(t) >= counts[size_t(b)])
          d = 0;
        for (int64_t p = 0; p < width; ++p) {
          double sum = skip.at({h}) * x.at({b, t, h, p});
          for (int64_t n = 0; n < state; ++n) {
            double &each = s[size_t(p * state + n)];
            each = std::exp(d * rate.at({h})) * each +
                   d * x.at({b, t, h, p}) * write.at({b, t, g, n});
            sum += each * read.at({b, t, g, n});
          }
          y.at({b, t, h, p}) = sum;
        }
      }
      for (int64_t i = 0; i < width * state; ++i)
        last.at({b, h, i / state, i % state}) = s[size_t(i)];
    }
  return {y, last};
}

// One token, one chunk, whole chunks, and several of which the last is short.
// Decays of which a chunk leaves nothing, too.
TEST(GraphDecomposition, StateSpaceScanIsARecurrence) {
  for (int64_t tokens : {1, 5, 8, 12, 23})
    for (const char *more : {"", "first", "counts", "from"})
      for (double fastest : {-0.5, -80.0}) {
        const std::string what = more;
        Tensor x = draw({2, tokens, 4, 3}, 1), step = draw({2, tokens, 4}, 2),
               rate = draw({4}, 3, fastest, 0),
               write = draw({2, tokens, 2, 5}, 4),
               read = draw({2, tokens, 2, 5}, 5), skip = draw({4}, 6),
               bias = draw({4}, 7), initial = draw({2, 4, 3, 5}, 8);
        Tensor first({2, tokens}), counts({2});
        std::mt19937 random(static_cast<unsigned>(tokens));
        for (int64_t at = 0; at < 2 * tokens; ++at)
          first.data[at] = at % tokens == 0    ? 0
                           : random() % 5 == 0 ? double(at % tokens)
                                               : first.data[at - 1];
        counts.data = {double(tokens / 2), double(tokens)};
        std::string types =
            llvm::formatv("tensor<2x{0}x4x3xf64>, tensor<2x{0}x4xf64>, "
                          "tensor<4xf64>, tensor<2x{0}x2x5xf64>, "
                          "tensor<2x{0}x2x5xf64>, tensor<4xf64>, tensor<4xf64>",
                          tokens);
        Tensors inputs{x, step, rate, write, read, skip, bias};
        std::string operand, declared;
        if (!what.empty()) {
          std::string type =
              what == "first"    ? llvm::formatv("tensor<2x{0}xi32>", tokens)
              : what == "counts" ? std::string("tensor<2xi32>")
                                 : std::string("tensor<2x4x3x5xf64>");
          inputs.push_back(what == "first"    ? first
                           : what == "counts" ? counts
                                              : initial);
          operand = what + " %m";
          declared = ", %m: " + type;
          types += ", " + type;
        }
        const std::string results = llvm::formatv(
                              "(tensor<2x{0}x4x3xf64>, tensor<2x4x3x5xf64>)",
                              tokens),
                          text = llvm::formatv(
                              "func.func @f(%x: tensor<2x{0}x4x3xf64>, %d: "
                              "tensor<2x{0}x4xf64>, %a: tensor<4xf64>, %b: "
                              "tensor<2x{0}x2x5xf64>, %c: "
                              "tensor<2x{0}x2x5xf64>, %k: tensor<4xf64>, %e: "
                              "tensor<4xf64>{1}) -> {2} {{ %y, %s = "
                              "graph.state_space_scan %x step %d rate %a write "
                              "%b read %c skip %k bias %e {3} chunk 8 {{least "
                              "= 0.2 : f64, most = 3.0 : f64} : ({4}) -> {2} "
                              "return %y, %s : tensor<2x{0}x4x3xf64>, "
                              "tensor<2x4x3x5xf64> }",
                              tokens, declared, results, operand, types);
        Tensors actual = evaluate(text, inputs),
                expected = scanned(
                    x, step, rate, write, read, skip, bias,
                    what == "first" ? first.data : std::vector<double>(),
                    what == "counts" ? counts.data : std::vector<double>(),
                    what == "from" ? &initial : nullptr);
        ASSERT_EQ(actual.size(), 2u) << text;
        expectClose(actual[0], expected[0], 1e-8); // log(1 + exp(20)) is 20
        expectClose(actual[1], expected[1], 1e-8);
      }
}

TEST(GraphDecomposition, Norms) {
  constexpr double eps = 0.25;
  Tensor x = draw({3, 5}, 1), w = draw({5}, 2), b = draw({5}, 3), layer({3, 5}),
         rms({3, 5});
  for (int64_t t = 0; t < 3; ++t) {
    double mean = 0, variance = 0, square = 0;
    for (int64_t i = 0; i < 5; ++i) {
      mean += x.at({t, i}) / 5;
      square += x.at({t, i}) * x.at({t, i}) / 5;
    }
    for (int64_t i = 0; i < 5; ++i)
      variance += (x.at({t, i}) - mean) * (x.at({t, i}) - mean) / 5;
    for (int64_t i = 0; i < 5; ++i) {
      layer.at({t, i}) =
          (x.at({t, i}) - mean) / std::sqrt(variance + eps) * w.at({i}) +
          b.at({i});
      rms.at({t, i}) = x.at({t, i}) / std::sqrt(square + eps) * w.at({i});
    }
  }
  expectClose(
      evaluate("func.func @f(%x: tensor<3x5xf64>, %w: tensor<5xf64>, %b: "
               "tensor<5xf64>) -> tensor<3x5xf64> { %y = graph.layer_norm %x, "
               "%w, %b eps 0.25 : tensor<3x5xf64>, tensor<5xf64>, "
               "tensor<5xf64> return %y : tensor<3x5xf64> }",
               {x, w, b})
          .at(0),
      layer);
  expectClose(
      evaluate("func.func @f(%x: tensor<3x5xf64>, %w: tensor<5xf64>) -> "
               "tensor<3x5xf64> { %y = graph.rms_norm %x, %w eps 0.25 : "
               "tensor<3x5xf64>, tensor<5xf64> return %y : tensor<3x5xf64> }",
               {x, w})
          .at(0),
      rms);
}

TEST(GraphDecomposition, Rope) {
  const double frequencies[] = {1.0, 0.25, 0.1}, scaling = 1.5;
  Tensor x = draw({2, 4, 3, 6}, 4), y({2, 4, 3, 6});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t h = 0; h < 3; ++h)
        for (int64_t i = 0; i < 3; ++i) {
          double angle = t * frequencies[i];
          double low = x.at({b, t, h, i}), high = x.at({b, t, h, i + 3});
          y.at({b, t, h, i}) =
              scaling * (low * std::cos(angle) - high * std::sin(angle));
          y.at({b, t, h, i + 3}) =
              scaling * (high * std::cos(angle) + low * std::sin(angle));
        }
  auto rope = [](const std::string &attrs, const Tensor &x) {
    return evaluate(
               "func.func @f(%x: tensor<2x4x3x6xf64>) -> tensor<2x4x3x6xf64> { "
               "%y = graph.rope %x {frequencies = array<f64: 1.0, 0.25, 0.1>" +
                   attrs +
                   "} : tensor<2x4x3x6xf64> return %y : tensor<2x4x3x6xf64> }",
               {x})
        .at(0);
  };
  expectClose(rope(", scaling = 1.5 : f64", x), y);
  // Turning there and back is where one was.
  expectClose(rope(", inverse", rope("", x)), x);
}

TEST(GraphDecomposition, Dropout) {
  const std::string types =
      " : tensor<4x6xf64>, tensor<i64>, tensor<i64>, tensor<i64>";
  Tensor x = draw({4, 6}, 5, 1, 2), seed({}, 11), step({}, 3), offset({}, 2);
  Tensor y =
      evaluate("func.func @f(%x: tensor<4x6xf64>, %s: tensor<i64>, %t: "
               "tensor<i64>, %o: tensor<i64>) -> tensor<4x6xf64> { %y = "
               "graph.dropout %x rate 0.25 stream 9 seed %s step %t offset %o" +
                   types + " return %y : tensor<4x6xf64> }",
               {x, seed, step, offset})
          .at(0);
  Tensor u =
      evaluate("func.func @f(%s: tensor<i64>, %t: tensor<i64>, %o: "
               "tensor<i64>) -> tensor<4x6xf32> { %y = graph.random uniform "
               "stream 9 seed %s step %t offset %o : tensor<i64>, tensor<i64>, "
               "tensor<i64> -> tensor<4x6xf32> return %y : tensor<4x6xf32> }",
               {seed, step, offset})
          .at(0);
  Tensor expected({4, 6});
  int64_t dropped = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    expected.data[i] = u.data[i] >= 0.25 ? x.data[i] / 0.75 : 0.0;
    dropped += u.data[i] < 0.25;
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, x.size());
  expectClose(y, expected);
  // A rate of zero is the identity, bit by bit.
  Tensor same =
      evaluate("func.func @f(%x: tensor<4x6xf64>, %s: tensor<i64>, %t: "
               "tensor<i64>, %o: tensor<i64>) -> tensor<4x6xf64> { %y = "
               "graph.dropout %x rate 0.0 stream 9 seed %s step %t offset %o" +
                   types + " return %y : tensor<4x6xf64> }",
               {x, seed, step, offset})
          .at(0);
  EXPECT_EQ(same.data, x.data);
}

//===--- attention --------------------------------------------------------===//

struct AttentionShape {
  int64_t batch, tokens, heads, kvHeads, headDim;
  bool causal;
  int64_t window; // 0: none
  int64_t keys;   // 0: as many as tokens, and no start
  int64_t start;

  int64_t keyCount() const { return keys ? keys : tokens; }
};

// Row by row, as the op's description says.
std::pair<Tensor, Tensor> attentionLoops(const AttentionShape &s, double scale,
                                         const Tensor &q, const Tensor &k,
                                         const Tensor &v) {
  Tensor out({s.batch, s.tokens, s.heads, s.headDim}),
      lse({s.batch, s.heads, s.tokens});
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t t = 0; t < s.tokens; ++t) {
        int64_t kv = h / (s.heads / s.kvHeads);
        double sum = 0;
        for (int64_t u = 0; u < s.keyCount(); ++u) {
          int64_t p = s.start + t;
          if ((s.causal && u > p) || (s.window && p - u >= s.window))
            continue;
          double score = 0;
          for (int64_t d = 0; d < s.headDim; ++d)
            score += scale * q.at({b, t, h, d}) * k.at({b, u, kv, d});
          sum += std::exp(score);
          for (int64_t d = 0; d < s.headDim; ++d)
            out.at({b, t, h, d}) += std::exp(score) * v.at({b, u, kv, d});
        }
        for (int64_t d = 0; d < s.headDim; ++d)
          out.at({b, t, h, d}) /= sum ? sum : 1;
        lse.at({b, h, t}) = std::log(sum);
      }
  return {out, lse};
}

TEST(GraphDecomposition, Attention) {
  const AttentionShape shapes[] = {
      {2, 5, 4, 2, 3, true, 0, 0, 0},  {1, 7, 3, 3, 4, false, 0, 0, 0},
      {1, 6, 4, 1, 2, true, 2, 0, 0},  {2, 4, 2, 2, 3, true, 1, 0, 0},
      {1, 5, 2, 1, 3, false, 2, 0, 0}, {1, 1, 1, 1, 2, true, 9, 0, 0},
      {2, 3, 4, 2, 3, true, 0, 7, 2},  {1, 4, 2, 1, 3, true, 0, 5, -2},
      {1, 4, 2, 1, 3, true, 2, 6, 3},  {1, 3, 2, 2, 2, false, 0, 5, 9}};
  for (const AttentionShape &s : shapes) {
    auto dims = [&](int64_t tokens, int64_t heads) {
      return std::to_string(s.batch) + "x" + std::to_string(tokens) + "x" +
             std::to_string(heads) + "x" + std::to_string(s.headDim);
    };
    std::string q = "tensor<" + dims(s.tokens, s.heads) + "xf64>",
                kv = "tensor<" + dims(s.keyCount(), s.kvHeads) + "xf64>";
    std::string lse = "tensor<" + std::to_string(s.batch) + "x" +
                      std::to_string(s.heads) + "x" + std::to_string(s.tokens) +
                      "xf32>";
    std::string attrs = s.causal ? "causal" : "";
    if (s.window)
      attrs += (attrs.empty() ? "" : ", ") +
               ("window = " + std::to_string(s.window) + " : i64");
    std::string text =
        "func.func @f(%q: " + q + ", %k: " + kv + ", %v: " + kv + ") -> (" + q +
        ", " + lse + ") { %s = graph.constant dense<" +
        std::to_string(s.start) +
        "> : tensor<i32> %y, %lse = graph.attention %q, %k, %v " +
        (s.keys ? "start %s " : "") + "scale 0.7 {" + attrs + "} : " + q +
        ", " + kv + ", " + kv + (s.keys ? ", tensor<i32>" : "") + " -> " + q +
        ", " + lse + " return %y, %lse : " + q + ", " + lse + " }";
    Tensor query = draw({s.batch, s.tokens, s.heads, s.headDim}, 6),
           key = draw({s.batch, s.keyCount(), s.kvHeads, s.headDim}, 7),
           value = draw({s.batch, s.keyCount(), s.kvHeads, s.headDim}, 8);
    Tensors actual = evaluate(text, {query, key, value});
    ASSERT_EQ(actual.size(), 2u);
    auto [out, logSum] = attentionLoops(s, 0.7, query, key, value);
    expectClose(actual[0], out);
    expectClose(actual[1], logSum);
  }
}

// Two sequences in the pages of one cache, row by row as the op's description
// says; pages that nobody sees are full of NaN.
TEST(GraphDecomposition, PagedAttention) {
  constexpr int64_t page = 2, window = 3, tokens = 2;
  Tensor query = draw({3, tokens, 4, 2}, 21), keys = draw({7, page, 2, 2}, 22),
         values = draw({7, page, 2, 2}, 23);
  Tensor table({3, 3}, {5, 0, -1, 3, 6, 1, 9, -7, 2}), starts({3}, {1, 4, 0}),
      lengths({3}, {3, 5, 0}); // the last one is not there
  for (int64_t unseen : {2, 4})
    for (Tensor *cache : {&keys, &values})
      for (int64_t i = 0; i < page * 4; ++i)
        cache->data[unseen * page * 4 + i] = std::nan("");
  Tensor expected({3, tokens, 4, 2});
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < 4; ++h) {
        int64_t position = int64_t(starts.data[b]) + t, kv = h / 2;
        double sum = 0, out[2] = {0, 0};
        for (int64_t s = 0; s <= position && s < lengths.data[b]; ++s) {
          if (position - s >= window)
            continue;
          auto at = int64_t(table.at({b, s / page}));
          double score = 0;
          for (int64_t d = 0; d < 2; ++d)
            score += query.at({b, t, h, d}) * keys.at({at, s % page, kv, d});
          double weight = std::exp(0.7 * score);
          sum += weight;
          for (int64_t d = 0; d < 2; ++d)
            out[d] += weight * values.at({at, s % page, kv, d});
        }
        for (int64_t d = 0; d < 2 && sum > 0; ++d)
          expected.at({b, t, h, d}) = out[d] / sum;
      }
  Tensors actual = evaluate(
      "func.func @f(%q: tensor<3x2x4x2xf64>, %k: tensor<7x2x2x2xf64>, %v: "
      "tensor<7x2x2x2xf64>, %t: tensor<3x3xi32>, %s: tensor<3xi32>, %l: "
      "tensor<3xi32>) -> tensor<3x2x4x2xf64> { %y = graph.paged_attention %q, "
      "%k, %v pages %t starts %s lengths %l scale 0.7 {window = 3 : i64} : "
      "tensor<3x2x4x2xf64>, tensor<7x2x2x2xf64>, tensor<3x3xi32>, "
      "tensor<3xi32> "
      "return %y : tensor<3x2x4x2xf64> }",
      {query, keys, values, table, starts, lengths});
  expectClose(actual[0], expected);
}

//===--- linear cross-entropy ---------------------------------------------===//

TEST(GraphDecomposition, LinearCrossEntropy) {
  Tensor x = draw({4, 3}, 9), w = draw({5, 3}, 10),
         targets({4}, {2, -100, 0, 4}), cotangent({}, 0.5);
  double loss = 0;
  Tensor dInput({4, 3}), dWeight({5, 3});
  for (int64_t t = 0; t < 4; ++t) {
    if (targets.at({t}) == -100)
      continue;
    auto target = static_cast<int64_t>(targets.at({t}));
    double logits[5] = {}, sum = 0;
    for (int64_t v = 0; v < 5; ++v) {
      for (int64_t k = 0; k < 3; ++k)
        logits[v] += x.at({t, k}) * w.at({v, k});
      sum += std::exp(logits[v]);
    }
    loss += std::log(sum) - logits[target];
    for (int64_t v = 0; v < 5; ++v)
      for (int64_t k = 0; k < 3; ++k) {
        double d = 0.5 * (std::exp(logits[v]) / sum - (v == target));
        dInput.at({t, k}) += d * w.at({v, k});
        dWeight.at({v, k}) += d * x.at({t, k});
      }
  }
  // Narrow targets must not confuse rows of a vocabulary beyond their range.
  for (const char *index : {"i32", "i64", "i8"}) {
    std::string t = std::string("tensor<4x") + index + ">";
    expectClose(
        evaluate(
            "func.func @f(%x: tensor<4x3xf64>, %w: tensor<5x3xf64>, %t: " + t +
                ") -> tensor<f32> { %y = graph.linear_cross_entropy %x, %w, %t "
                ": tensor<4x3xf64>, tensor<5x3xf64>, " +
                t + " -> tensor<f32> return %y : tensor<f32> }",
            {x, w, targets})
            .at(0),
        Tensor({}, loss));
    Tensors grad = evaluate(
        "func.func @f(%x: tensor<4x3xf64>, %w: tensor<5x3xf64>, %t: " + t +
            ", %g: tensor<f32>) -> (tensor<f32>, tensor<4x3xf64>, "
            "tensor<5x3xf64>) { %y:3 = graph.linear_cross_entropy_grad %x, %w, "
            "%t, %g : (tensor<4x3xf64>, tensor<5x3xf64>, " +
            t +
            ", tensor<f32>) -> (tensor<f32>, tensor<4x3xf64>, tensor<5x3xf64>) "
            "return %y#0, %y#1, %y#2 : tensor<f32>, tensor<4x3xf64>, "
            "tensor<5x3xf64> }",
        {x, w, targets, cotangent});
    ASSERT_EQ(grad.size(), 3u);
    expectClose(grad[0], Tensor({}, loss));
    expectClose(grad[1], dInput);
    expectClose(grad[2], dWeight);
  }
}

// Those of each target alone, of which one is ignored and one occurs twice.
TEST(GraphDecomposition, LinearCrossEntropyOfSeveralTargets) {
  Tensor x = draw({3, 4}, 11), w = draw({5, 4}, 12), g = draw({3, 2}, 13),
         both({3, 2}, {2, 0, -100, 4, 1, 1});
  const std::string types = "tensor<3x4xf64>, tensor<5x4xf64>, ";
  auto run = [&](const std::string &suffix, const Tensor &targets,
                 const Tensor &cotangent) {
    const std::string t = "tensor<3" + suffix + "xi32>",
                      c = "tensor<3" + suffix + "xf64>";
    return evaluate(
        "func.func @f(%x: tensor<3x4xf64>, %w: tensor<5x4xf64>, %t: " + t +
            ", %g: " + c + ") -> (" + c +
            ", tensor<f64>, tensor<3x4xf64>, tensor<5x4xf64>) { %l = "
            "graph.linear_cross_entropy %x, %w, %t : " +
            types + t + " -> " + c +
            " %y:3 = graph.linear_cross_entropy_grad %x, %w, %t, %g : (" +
            types + t + ", " + c +
            ") -> (tensor<f64>, tensor<3x4xf64>, tensor<5x4xf64>) return %l, "
            "%y#0, %y#1, %y#2 : " +
            c + ", tensor<f64>, tensor<3x4xf64>, tensor<5x4xf64> }",
        {x, w, targets, cotangent});
  };
  Tensors all = run("x2", both, g);
  ASSERT_EQ(all.size(), 4u);
  Tensor losses({3, 2}), sum({}, 0), dInput({3, 4}), dWeight({5, 4});
  for (int64_t n = 0; n < 2; ++n) {
    Tensor targets({3}), cotangent({3});
    for (int64_t t = 0; t < 3; ++t) {
      targets.at({t}) = both.at({t, n});
      cotangent.at({t}) = g.at({t, n});
    }
    Tensors one = run("", targets, cotangent);
    for (int64_t t = 0; t < 3; ++t)
      losses.at({t, n}) = one[0].at({t});
    sum.at({}) += one[1].at({});
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t t = 0; t < 3; ++t)
        dInput.at({t, k}) += one[2].at({t, k});
      for (int64_t v = 0; v < 5; ++v)
        dWeight.at({v, k}) += one[3].at({v, k});
    }
  }
  expectClose(all[0], losses);
  expectClose(all[1], sum);
  expectClose(all[2], dInput);
  expectClose(all[3], dWeight);
}

//===--- every composite, every type --------------------------------------===//

// Decompositions verify in every float type, and give the op's result types.
TEST(GraphDecomposition, VerifiesInEveryFloatType) {
  const std::map<std::string, std::string> ops{
      {"softmax",
       "func.func @f(%x: tensor<3x4x$T>) -> tensor<3x4x$T> { %y = "
       "graph.softmax %x : tensor<3x4x$T> return %y : tensor<3x4x$T> }"},
      {"layer_norm",
       "func.func @f(%x: tensor<3x4x$T>, %w: tensor<4xf32>) -> tensor<3x4x$T> "
       "{ %y = graph.layer_norm %x, %w, %w eps 0.1 : tensor<3x4x$T>, "
       "tensor<4xf32>, tensor<4xf32> return %y : tensor<3x4x$T> }"},
      {"rms_norm", "func.func @f(%x: tensor<3x4x$T>, %w: tensor<4x$T>) -> "
                   "tensor<3x4x$T> { %y = graph.rms_norm %x, %w eps 0.1 : "
                   "tensor<3x4x$T>, tensor<4x$T> return %y : tensor<3x4x$T> }"},
      {"quantize_rows",
       "func.func @f(%x: tensor<3x4x$T>) -> tensor<3x1x$T> { %y, %s = "
       "graph.quantize_rows %x : tensor<3x4x$T> -> tensor<3x4xi8>, "
       "tensor<3x1x$T> return %s : tensor<3x1x$T> }"},
      {"rope", "func.func @f(%x: tensor<1x3x2x4x$T>) -> tensor<1x3x2x4x$T> { "
               "%y = graph.rope %x {frequencies = array<f64: 1.0, 0.1>} : "
               "tensor<1x3x2x4x$T> return %y : tensor<1x3x2x4x$T> }"},
      {"dropout",
       "func.func @f(%x: tensor<3x4x$T>, %s: tensor<i64>) -> tensor<3x4x$T> { "
       "%y = graph.dropout %x rate 0.1 stream 0 seed %s step %s : "
       "tensor<3x4x$T>, tensor<i64>, tensor<i64> return %y : tensor<3x4x$T> }"},
      {"attention",
       "func.func @f(%q: tensor<1x3x4x2x$T>, %k: tensor<1x3x2x2x$T>) -> "
       "tensor<1x3x4x2x$T> { %y, %l = graph.attention %q, %k, %k scale 0.5 "
       "{causal, window = 2 : i64} : tensor<1x3x4x2x$T>, tensor<1x3x2x2x$T>, "
       "tensor<1x3x2x2x$T> -> tensor<1x3x4x2x$T>, tensor<1x4x3xf32> return %y "
       ": tensor<1x3x4x2x$T> }"},
      {"attention_grad",
       "func.func @f(%q: tensor<1x3x4x2x$T>, %k: tensor<1x3x2x2x$T>, %l: "
       "tensor<1x4x3xf32>) -> tensor<1x3x4x2x$T> { %y:3 = graph.attention_grad "
       "%q, %k, %k, %q, %l, %q scale 0.5 {causal} : tensor<1x3x4x2x$T>, "
       "tensor<1x3x2x2x$T>, tensor<1x3x2x2x$T>, tensor<1x3x4x2x$T>, "
       "tensor<1x4x3xf32>, tensor<1x3x4x2x$T> return %y#0 : tensor<1x3x4x2x$T> "
       "}"},
      {"paged_attention",
       "func.func @f(%q: tensor<1x3x4x2x$T>, %k: tensor<5x2x2x2x$T>, %t: "
       "tensor<1x2xi32>, %s: tensor<1xi32>) -> tensor<1x3x4x2x$T> { %y = "
       "graph.paged_attention %q, %k, %k pages %t starts %s lengths %s scale "
       "0.5 {window = 2 : i64} : tensor<1x3x4x2x$T>, tensor<5x2x2x2x$T>, "
       "tensor<1x2xi32>, tensor<1xi32> return %y : tensor<1x3x4x2x$T> }"},
      {"grouped_matmul",
       "func.func @f(%x: tensor<5x3x$T>, %w: tensor<2x3x4x$T>, %o: "
       "tensor<3xi32>) -> tensor<5x4x$T> { %y = graph.grouped_matmul %x, %w "
       "groups %o : (tensor<5x3x$T>, tensor<2x3x4x$T>, tensor<3xi32>) -> "
       "tensor<5x4x$T> return %y : tensor<5x4x$T> }"},
      {"grouped_outer",
       "func.func @f(%x: tensor<2x5x3x$T>, %y: tensor<2x5x4x$T>, %c: "
       "tensor<2xi32>) -> tensor<2x3x4x$T> { %z = graph.grouped_outer %x, %y "
       "groups %c : (tensor<2x5x3x$T>, tensor<2x5x4x$T>, tensor<2xi32>) -> "
       "tensor<2x3x4x$T> return %z : tensor<2x3x4x$T> }"},
      {"top_k", "func.func @f(%s: tensor<3x5x$T>) -> tensor<3x2xi32> { %i = "
                "graph.top_k %s : (tensor<3x5x$T>) -> tensor<3x2xi32> return "
                "%i : tensor<3x2xi32> }"},
      {"take_along_axis",
       "func.func @f(%x: tensor<3x5x$T>, %i: tensor<3x2xi32>) -> "
       "tensor<3x2x$T> { %y = graph.take_along_axis %x at %i : "
       "(tensor<3x5x$T>, "
       "tensor<3x2xi32>) -> tensor<3x2x$T> return %y : tensor<3x2x$T> "
       "}"},
      {"rank_in_group",
       "func.func @f(%i: tensor<2x6xi32>, %s: tensor<2x6x$T>) -> "
       "tensor<2x6xi32> { %r = graph.rank_in_group %i by %s groups 3 : "
       "(tensor<2x6xi32>, tensor<2x6x$T>) -> tensor<2x6xi32> return %r : "
       "tensor<2x6xi32> }"},
      {"discounted_sum",
       "func.func @f(%x: tensor<2x200x$T>, %s: tensor<2x200xi32>) -> "
       "tensor<2x200x$T> { %y = graph.discounted_sum %x, %s discount 0.5 : "
       "tensor<2x200x$T>, tensor<2x200xi32> return %y : tensor<2x200x$T> }"},
      {"segment_sum",
       "func.func @f(%x: tensor<2x5x$T>) -> tensor<2x5x5x$T> { %y = "
       "graph.segment_sum %x : tensor<2x5x$T> -> tensor<2x5x5x$T> return %y : "
       "tensor<2x5x5x$T> }"},
      {"state_space_scan",
       "func.func @f(%x: tensor<2x7x4x3x$T>, %d: tensor<2x7x4x$T>, %a: "
       "tensor<4x$T>, %b: tensor<2x7x2x5x$T>, %f: tensor<2x7xi32>) -> "
       "tensor<2x7x4x3x$T> { %y, %s = graph.state_space_scan %x step %d rate "
       "%a write %b read %b skip %a bias %a first %f chunk 3 : "
       "(tensor<2x7x4x3x$T>, tensor<2x7x4x$T>, tensor<4x$T>, "
       "tensor<2x7x2x5x$T>, tensor<2x7x2x5x$T>, tensor<4x$T>, tensor<4x$T>, "
       "tensor<2x7xi32>) -> (tensor<2x7x4x3x$T>, tensor<2x4x3x5xf32>) return "
       "%y : tensor<2x7x4x3x$T> }"},
      {"group_rows",
       "func.func @f(%i: tensor<3x2xi32>) -> tensor<3x2xi32> { %o, %p = "
       "graph.group_rows %i : (tensor<3x2xi32>) -> (tensor<5xi32>, "
       "tensor<3x2xi32>) return %p : tensor<3x2xi32> }"},
      {"dispatch_rows",
       "func.func @f(%x: tensor<3x4x$T>, %p: tensor<3x2xi32>, %w: "
       "tensor<3x2x$T>) -> tensor<6x4x$T> { %y = graph.dispatch_rows %x slots "
       "%p weights %w : (tensor<3x4x$T>, tensor<3x2xi32>, tensor<3x2x$T>) -> "
       "tensor<6x4x$T> return %y : tensor<6x4x$T> }"},
      {"combine_rows",
       "func.func @f(%x: tensor<6x4x$T>, %p: tensor<3x2xi32>, %w: "
       "tensor<3x2x$T>) -> tensor<3x4x$T> { %y = graph.combine_rows %x slots "
       "%p weights %w : (tensor<6x4x$T>, tensor<3x2xi32>, tensor<3x2x$T>) -> "
       "tensor<3x4x$T> return %y : tensor<3x4x$T> }"},
      {"dot_rows",
       "func.func @f(%x: tensor<3x4x$T>, %r: tensor<6x4x$T>, %p: "
       "tensor<3x2xi32>) -> tensor<3x2x$T> { %y = graph.dot_rows %x, %r slots "
       "%p : (tensor<3x4x$T>, tensor<6x4x$T>, tensor<3x2xi32>) -> "
       "tensor<3x2x$T> return %y : tensor<3x2x$T> }"},
      {"send_rows",
       "func.func @f(%x: tensor<6x4x$T>, %p: tensor<3x2xi32>, %g: "
       "tensor<3xi32>) -> (tensor<6x4x$T>, tensor<3xi32>) { %y:2 = "
       "graph.send_rows %x slots %p groups %g : (tensor<6x4x$T>, "
       "tensor<3x2xi32>, tensor<3xi32>) -> (tensor<6x4x$T>, tensor<3xi32>) "
       "return %y#0, %y#1 : tensor<6x4x$T>, tensor<3xi32> }"},
      {"return_rows",
       "func.func @f(%x: tensor<6x4x$T>, %p: tensor<3x2xi32>, %g: "
       "tensor<3xi32>) -> tensor<6x4x$T> { %y = graph.return_rows %x slots "
       "%p groups %g : (tensor<6x4x$T>, tensor<3x2xi32>, tensor<3xi32>) -> "
       "tensor<6x4x$T> return %y : tensor<6x4x$T> }"},
      {"linear_cross_entropy",
       "func.func @f(%x: tensor<4x3x$T>, %w: tensor<5x3x$T>, %t: "
       "tensor<4xi32>) -> tensor<f32> { %y = graph.linear_cross_entropy %x, "
       "%w, %t : tensor<4x3x$T>, tensor<5x3x$T>, tensor<4xi32> -> tensor<f32> "
       "return %y : tensor<f32> }"},
      {"linear_cross_entropy_grad",
       "func.func @f(%x: tensor<4x3x$T>, %w: tensor<5x3x$T>, %t: "
       "tensor<4xi32>, %g: tensor<f32>) -> tensor<f32> { %y:3 = "
       "graph.linear_cross_entropy_grad %x, %w, %t, %g : (tensor<4x3x$T>, "
       "tensor<5x3x$T>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, "
       "tensor<4x3x$T>, tensor<5x3x$T>) return %y#0 : tensor<f32> }"}};
  for (RegisteredOperationName name : context().getRegisteredOperations()) {
    if (!name.hasInterface<Decomposable>())
      continue;
    auto it = ops.find(name.stripDialect().str());
    ASSERT_NE(it, ops.end()) << name.getStringRef().str()
                             << " is Decomposable and has no case in this test";
    for (const char *type : {"f64", "f32", "bf16", "f16"}) {
      OwningOpRef<ModuleOp> module = parse(withType(it->second, type));
      ASSERT_TRUE(module) << it->second;
      auto op = cast<Decomposable>(
          module->lookupSymbol<func::FuncOp>("f").front().front());
      OpBuilder builder(op);
      SmallVector<Value> results = op.decompose(builder);
      ASSERT_EQ(ValueRange(results).getTypes(), op->getResultTypes())
          << it->first << " in " << type;
      op->replaceAllUsesWith(results);
      op->erase();
      EXPECT_TRUE(succeeded(verify(*module))) << it->first << " in " << type;
    }
  }
}

} // namespace
