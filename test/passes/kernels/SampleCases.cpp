// Tokens drawn from logits of a few and of many tokens: the likeliest, by
// temperature, top-k, min-p and top-p alone and together, among ties, with
// tokens that are not allowed and logits that are changed. From the weights on
// the numbers are integers: every target draws the interpreter's tokens.
#include "runtime/support/SplitMix64.h"
#include "test/passes/kernels/KernelCases.h"
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace tessera::testing {
namespace {

using interpreter::Tensor;
using Tensors = std::vector<Tensor>;

struct Shape {
  int batch, vocab, entries;
  /// More than are needed: a word's tokens are so many apart.
  int words() const { return (vocab + 31) / 32 + 3; }
};

std::string text(const Shape &s) {
  auto rows = [&](const std::string &rest) {
    return fmt::format("tensor<{}x{}>", s.batch, rest);
  };
  std::string logits = rows(fmt::format("{}xf32", s.vocab)),
              allowed = rows(fmt::format("{}xi32", s.words())),
              changed = rows(fmt::format("{}xi32", s.entries)),
              changes = rows(fmt::format("{}x4xf32", s.entries)),
              options = rows("2xf32"), limits = rows("4xi32"),
              tokens = rows("i32");
  return fmt::format(R"(
func.func @main(%l: {0}, %a: {1}, %t: {2}, %c: {3}, %o: {4}, %n: {5}) -> {6} {{
  %r = graph.sample %l allowed %a change %t by %c options %o limits %n : {0}, {1}, {2}, {3}, {4}, {5} -> {6}
  return %r : {6}
}})",
                     logits, allowed, changed, changes, options, limits,
                     tokens);
}

/// What a row asks for.
struct Wish {
  float temperature = 1, minP = 0;
  uint32_t topK = 0;
  double topP = 0;
};

// A word as the signed integer that has its bits.
double word(uint64_t bits) { return int32_t(uint32_t(bits)); }

/// Logits in steps of 1 / `steps`, so that many are equal; all allowed, none
/// changed.
void prepare(const Shape &s, const std::vector<Wish> &samplings, double steps,
             Tensors &inputs) {
  for (double &logit : inputs[0].data)
    logit = float(std::round(logit * steps) / steps);
  for (double &bits : inputs[1].data)
    bits = -1;
  for (double &token : inputs[2].data)
    token = -1;
  SplitMix64 random(s.vocab + 7);
  for (int b = 0; b < s.batch; ++b) {
    const Wish &sampling = samplings[b % samplings.size()];
    double *options = &inputs[4].data[2 * b], *limits = &inputs[5].data[4 * b];
    options[0] = sampling.temperature, options[1] = sampling.minP;
    limits[0] = word(sampling.topK), limits[1] = word(sampling.topP * 0x1p32);
    limits[2] = word(random()), limits[3] = word(random());
  }
}

const std::vector<Wish> &samplings() {
  static const std::vector<Wish> all = {{0},
                                        {1},
                                        {0.7},
                                        {1, 0, 5},
                                        {1, 0.3},
                                        {1, 0, 0, 0.6},
                                        {2, 0.01, 9, 0.9},
                                        {1, 0, 1},
                                        {0.01},
                                        {1, 1},
                                        {1, 0, 0, 1e-9},
                                        {3, 0, 1u << 31, 0.999}};
  return all;
}

KernelCase drawing(const char *name, const Shape &s, double steps) {
  return {
      fmt::format("Sample{}", name), text(s), -6, 6, 0, [=](Tensors &inputs) {
        prepare(s, samplings(), steps, inputs);
      }};
}

// Every second token is allowed, in one row a single one; some are likelier
// for a bias, and less likely for having been there.
KernelCase changing() {
  Shape s{9, 301, 40};
  return {"SampleChanged", text(s), -6, 6, 0, [=](Tensors &inputs) {
            prepare(s, {{0}, {1}, {1, 0, 4, 0.8}}, 8, inputs);
            for (int b = 0; b < s.batch; ++b) {
              for (int w = 0; w < s.words(); ++w)
                inputs[1].data[b * s.words() + w] =
                    b == 4 ? (w == 3 ? word(1u << 8) : 0)
                           : word(b % 2 ? 0x5555aaaa : 0xffffffff);
              for (int i = 0; i < 4 * b; ++i) {
                // Some slots have no token.
                inputs[2].data[b * s.entries + i] =
                    i == 5   ? -1
                    : i == 9 ? s.vocab
                             : (i * 37 + b) % s.vocab;
                double *change = &inputs[3].data[4 * (b * s.entries + i)];
                change[0] = i % 3 == 0 ? 6.5 : 0;
                change[1] = 1.25, change[2] = 1 / 1.25f;
                change[3] = i % 5 * 0.5;
              }
            }
          }};
}

// What is no number, nothing that is allowed, an infinity; temperatures that
// leave one token, and all of them alike.
KernelCase extreme(const char *name, int vocab) {
  Shape s{8, vocab, 1};
  return {fmt::format("SampleExtreme{}", name),
          text(s),
          -6,
          6,
          0,
          [=](Tensors &inputs) {
            constexpr double infinity = std::numeric_limits<double>::infinity();
            prepare(s, {{1}, {0}, {1}, {0}, {1e-40f}, {3e38f}, {1}, {0.5}}, 100,
                    inputs);
            auto row = [&](int i) { return &inputs[0].data[i * s.vocab]; };
            row(0)[99] = std::nan("");
            row(1)[3] = infinity;
            for (int w = 0; w < s.words(); ++w)
              inputs[1].data[2 * s.words() + w] = 0;
            std::fill_n(row(3), s.vocab, -infinity);
            std::fill_n(row(6), s.vocab, -infinity);
            row(6)[71] = -3e38;
            for (int i = 0; i < s.vocab; ++i)
              row(7)[i] = i % 2 ? 3e38f : -3e38f;
          }};
}

} // namespace

const std::vector<KernelCase> &sampleCases() {
  static const std::vector<KernelCase> cases = {
      drawing("Few", {24, 50, 2}, 1e4),
      drawing("Ties", {36, 333, 3}, 1),
      drawing("One", {3, 1, 1}, 1),
      drawing("Many", {12, 9001, 1}, 30),
      drawing("ManyTies", {12, 10240, 1}, 1),
      changing(),
      extreme("", 100),
      extreme("Many", 8193)};
  return cases;
}

} // namespace tessera::testing
