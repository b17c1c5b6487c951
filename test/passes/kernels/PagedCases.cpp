// Attention over pages and what fills them: sequences that end within a page,
// that are not there at all, pages out of order; one token a sequence and many;
// grouped queries; windows; pages shorter and longer than a tile of keys.
// What lies in no page that a query sees is not a number.
#include "test/passes/kernels/KernelCases.h"
#include <cmath>
#include <fmt/format.h>

namespace tessera::testing {
namespace {

using interpreter::Tensor;

struct Shape {
  int tokens, heads, kvHeads, headDim, page, pages; ///< pages of a sequence
  int window;                                       ///< 0: none
  std::vector<int> starts; ///< one for each sequence; -1: not there
  double cap = 0;          ///< of scores; 0: none
  bool sinks = false;
};

/// With `int8`, keys and values are so, and their scales arguments.
std::string text(const Shape &s, const char *element, bool int8 = false) {
  int batch = s.starts.size();
  std::string query = fmt::format("tensor<{}x{}x{}x{}x{}>", batch, s.tokens,
                                  s.heads, s.headDim, element),
              cache = fmt::format("tensor<{}x{}x{}x{}x{}>", batch * s.pages + 1,
                                  s.page, s.kvHeads, s.headDim, element),
              table = fmt::format("tensor<{}x{}xi32>", batch, s.pages),
              counts = fmt::format("tensor<{}xi32>", batch);
  std::vector<std::string> bounds;
  if (s.window)
    bounds.push_back(fmt::format("window = {} : i64", s.window));
  if (s.cap)
    bounds.push_back(fmt::format("cap = {:.1f} : f64", s.cap));
  std::string window =
      bounds.empty() ? "" : fmt::format("{{{}}} ", fmt::join(bounds, ", "));
  if (int8) {
    auto kept = [&](int width, const char *type) {
      return fmt::format("tensor<{}x{}x{}x{}x{}>", batch * s.pages + 1, s.page,
                         s.kvHeads, width, type);
    };
    return fmt::format(R"(
func.func @main(%q: {0}, %i: {5}, %j: {5}, %t: {2}, %s: {3}, %l: {3}, %x: {6}, %y: {6}) -> {0} {{
  %k = graph.dequantize_rows %i, %x : {5}, {6} -> {1}
  %v = graph.dequantize_rows %j, %y : {5}, {6} -> {1}
  %a = graph.paged_attention %q, %k, %v pages %t starts %s lengths %l scale 0.2 {4}: {0}, {1}, {2}, {3}
  return %a : {0}
}})",
                       query, cache, table, counts, window,
                       kept(s.headDim, "i8"), kept(1, element));
  }
  const std::string sinks = fmt::format(": tensor<{}xf32>", s.heads);
  return fmt::format(R"(
func.func @main(%q: {0}, %k: {1}, %v: {1}, %t: {2}, %s: {3}, %l: {3}{5}) -> {0} {{
  %a = graph.paged_attention %q, %k, %v pages %t starts %s lengths %l {6}scale 0.2 {4}: {0}, {1}, {2}, {3}
  return %a : {0}
}})",
                     query, cache, table, counts, window,
                     s.sinks ? ", %z" + sinks : "",
                     s.sinks ? "sinks %z " + sinks + " " : "");
}

/// Gives each sequence pages from the last one down, every second first, and
/// poisons the rows that nobody sees, of int8 by their scales.
void prepare(const Shape &s, std::vector<Tensor> &inputs) {
  int batch = s.starts.size(), pages = batch * s.pages + 1;
  std::vector<bool> seen(pages * s.page);
  for (int b = 0; b < batch; ++b) {
    bool there = s.starts[b] >= 0;
    int start = there ? s.starts[b] : 0;
    // The last tokens of a bucket may be padding.
    int length = there ? start + std::max(1, s.tokens - b % 2) : 0;
    inputs[4].data[b] = start;
    inputs[5].data[b] = length;
    for (int entry = 0; entry < s.pages; ++entry) {
      int page = pages - 1 - (entry * batch + b) * 2 % (batch * s.pages | 1);
      bool used = entry * s.page < length;
      inputs[3].data[b * s.pages + entry] = used ? page : -1;
      for (int row = 0; used && row < s.page; ++row) {
        int key = entry * s.page + row;
        if (key < length &&
            (!s.window || entry >= (start - s.window + 1) / s.page))
          seen[page * s.page + row] = true;
      }
    }
  }
  bool int8 = inputs.size() > 7;
  int width = s.kvHeads * (int8 ? 1 : s.headDim);
  const int first = int8 ? 6 : 1;
  for (int tensor : {first, first + 1})
    for (size_t row = 0; row < seen.size(); ++row)
      for (int i = 0; i < width; ++i)
        if (!seen[row])
          inputs[tensor].data[row * width + i] = std::nan("");
}

// Integers of all sizes, whose rows stand for numbers as of the other cases.
void prepareInt8(const Shape &s, std::vector<Tensor> &inputs) {
  for (int tensor : {1, 2})
    for (int64_t i = 0; i < inputs[tensor].size(); ++i)
      inputs[tensor].data[i] = (i * 73 + tensor * 11) % 255 - 127;
  for (int tensor : {6, 7})
    for (double &scale : inputs[tensor].data)
      scale = (std::abs(scale) + 1) / 128;
  prepare(s, inputs);
}

// Rows with signs, of zeros, of numbers so small that their scale is none, and
// halves.
KernelCase quantizeRows(const char *element, int width) {
  KernelCase result;
  result.name = fmt::format("QuantizeRows{}_{}", width, element);
  result.text = fmt::format(R"(
func.func @main(%x: tensor<3x7x{0}x{1}>) -> (tensor<3x7x{0}xi8>, tensor<3x7x1x{1}>) {{
  %v, %s = graph.quantize_rows %x : tensor<3x7x{0}x{1}> -> tensor<3x7x{0}xi8>, tensor<3x7x1x{1}>
  return %v, %s : tensor<3x7x{0}xi8>, tensor<3x7x1x{1}>
}})",
                            width, element);
  result.low = -3;
  result.high = 3;
  // The interpreter rounds no scales, so that some are a step apart.
  result.tolerance = 1. / 120;
  result.prepare = [width](std::vector<Tensor> &inputs) {
    for (int i = 0; i < width; ++i) {
      inputs[0].data[i] = 0;
      inputs[0].data[width + i] *= 0x1p-140;
      inputs[0].data[2 * width + i] = i ? i % 11 - 5.5 : 127;
    }
  };
  return result;
}

// Rows replaced in a cache; the update is computed on the way.
KernelCase scatterRows(const char *element, int width) {
  std::string row = fmt::format("x{}x{}>", width, element);
  KernelCase result;
  result.name = fmt::format("ScatterRows{}_{}", width, element);
  result.text = fmt::format(R"(
func.func @main(%b: tensor<37{0}, %i: tensor<2x5xi32>, %u: tensor<2x5{0}) -> tensor<37{0} {{
  %n = graph.{1} : tensor<2x5{0}
  %r = graph.scatter_rows %n at %i into %b : tensor<2x5{0}, tensor<2x5xi32>, tensor<37{0}
  return %r : tensor<37{0}
}})",
                            row, element[0] == 'i' ? "add %u, %u" : "neg %u");
  result.low = -2;
  result.high = 2;
  result.tolerance = 0;
  result.prepare = [](std::vector<Tensor> &inputs) {
    inputs[1].data = {3, 36, -1, 0, 12, 5, -1, -1, 7, 20};
  };
  return result;
}

std::vector<KernelCase> make() {
  std::vector<KernelCase> cases;
  for (const Shape &s :
       {Shape{1, 4, 2, 16, 16, 5, 0, {0, 70, -1, 37}},
        Shape{1, 3, 3, 20, 8, 9, 0, {71, 3}},
        Shape{1, 8, 1, 64, 64, 2, 0, {100, 63, 64}},
        Shape{1, 40, 2, 16, 32, 20, 0, {639}}, // a group of more than a tile
        Shape{1, 4, 2, 16, 16, 40, 21, {600, 5}},
        Shape{1, 2, 1, 128, 128, 5, 0, {630, 127}},
        Shape{7, 4, 2, 16, 16, 5, 0, {0, 70, -1}},
        Shape{70, 2, 1, 32, 32, 8, 0, {100, 0}},
        Shape{70, 2, 2, 24, 8, 20, 33, {90, 5}},
        Shape{33, 2, 1, 5, 16, 6, 0, {40}},
        Shape{1, 4, 2, 24, 16, 5, 20, {0, 70, -1, 37}, 1.5},
        Shape{70, 2, 1, 16, 16, 8, 0, {50, 0}, 1.5},
        // Pages and heads of whole matrix registers.
        Shape{1, 40, 2, 32, 32, 20, 0, {639}},
        Shape{1, 8, 2, 64, 64, 6, 40, {300, 5, -1, 64}},
        Shape{33, 4, 2, 96, 32, 6, 0, {40, 0}},
        Shape{130, 2, 1, 64, 64, 5, 70, {90, 5}, 1.5},
        // Sinks: of groups, of more keys than a block has, of a sequence that
        // is not there, with windows; of chunks.
        Shape{1, 6, 2, 16, 16, 5, 0, {0, 70, -1, 37}, 0, true},
        Shape{1, 4, 2, 16, 16, 40, 21, {600, 5}, 0, true},
        Shape{1, 8, 1, 64, 64, 10, 0, {600, 63}, 1.5, true},
        Shape{70, 4, 2, 16, 16, 8, 0, {50, 0, -1}, 0, true},
        Shape{33, 4, 2, 96, 32, 6, 9, {40, 0}, 0, true}})
    for (const char *element : {"f32", "bf16"}) {
      KernelCase test;
      test.name = fmt::format("{}{}Paged{}x{}x{}over{}x{}page{}window{}_{}",
                              s.cap ? "Capped" : "", s.sinks ? "Sinks" : "",
                              s.starts.size(), s.tokens, s.heads, s.kvHeads,
                              s.headDim, s.page, s.window, element);
      test.text = text(s, element);
      test.low = -2;
      test.high = 2;
      test.tolerance = element[0] == 'f' ? 1e-5 : 2e-2;
      test.prepare = [s](std::vector<Tensor> &inputs) { prepare(s, inputs); };
      cases.push_back(test);
    }
  for (const char *element : {"f32", "bf16"})
    for (int width : {64, 21})
      cases.push_back(scatterRows(element, width));
  return cases;
}

// Caches as models have them: Llama 3's groups of four, GPT-2's of one; a
// decode step of eight sequences and a chunk of a prompt.
std::vector<KernelCase> makeLarge() {
  std::vector<KernelCase> cases;
  for (int tokens : {1, 256})
    for (int headDim : {64, 80, 128, 256})
      for (const char *element : {"f32", "bf16"}) {
        Shape s{tokens, 32, headDim == 64 ? 32 : 8, headDim, 64, 64, 0, {}};
        s.starts.resize(tokens == 1 ? 8 : 1);
        if (headDim <= 128 || element[0] == 'b')
          cases.push_back(
              {fmt::format("LargePaged{}x{}_{}", tokens, headDim, element),
               text(s, element),
               -2,
               2,
               0,
               {}});
      }
  return cases;
}

// Keys and values of int8.
std::vector<KernelCase> makeInt8() {
  std::vector<KernelCase> cases;
  for (const Shape &s : {Shape{1, 4, 2, 16, 16, 5, 0, {0, 70, -1, 37}},
                         Shape{1, 3, 3, 20, 8, 9, 0, {71, 3}},
                         Shape{1, 2, 1, 128, 128, 5, 40, {630, 127}},
                         Shape{70, 2, 1, 64, 64, 4, 0, {100, 0}},
                         Shape{1, 8, 2, 64, 64, 6, 40, {300, 5, -1, 64}},
                         Shape{33, 4, 2, 96, 32, 6, 0, {40, 0}, 1.5},
                         Shape{33, 2, 1, 5, 16, 6, 33, {40}, 1.5}})
    for (const char *element : {"f32", "bf16"}) {
      KernelCase test;
      test.name = fmt::format("PagedInt8{}x{}x{}over{}x{}page{}window{}_{}",
                              s.starts.size(), s.tokens, s.heads, s.kvHeads,
                              s.headDim, s.page, s.window, element);
      test.text = text(s, element, true);
      test.low = -2;
      test.high = 2;
      test.tolerance = element[0] == 'f' ? 1e-5 : 2e-2;
      test.prepare = [s](std::vector<Tensor> &inputs) {
        prepareInt8(s, inputs);
      };
      cases.push_back(test);
    }
  for (const char *element : {"f32", "bf16"})
    for (int width : {64, 21})
      cases.push_back(quantizeRows(element, width));
  for (int width : {64, 21})
    cases.push_back(scatterRows("i8", width));
  return cases;
}

} // namespace

const std::vector<KernelCase> &pagedInt8Cases() {
  static const std::vector<KernelCase> cases = makeInt8();
  return cases;
}

const std::vector<KernelCase> &pagedCases() {
  static const std::vector<KernelCase> cases = make();
  return cases;
}

const std::vector<KernelCase> &largePagedCases() {
  static const std::vector<KernelCase> cases = makeLarge();
  return cases;
}

} // namespace tessera::testing
