// Attention forward and backward: windows that hide whole tiles of keys from
// some queries of a tile, sequences shorter than a tile, grouped queries,
// ragged heads.
#include "test/passes/kernels/KernelCases.h"
#include <fmt/format.h>

namespace tessera::testing {
namespace {

struct Shape {
  int batch, tokens, heads, kvHeads, headDim, window; ///< window 0: none
  double cap = 0;                                     ///< of scores; 0: none
  bool sinks = false;
};

/// What the text of a case is made of: types, and the ops' attributes.
struct Parts {
  Parts(const Shape &s, int keys, const char *element)
      : q(fmt::format("tensor<{}x{}x{}x{}x{}>", s.batch, s.tokens, s.heads,
                      s.headDim, element)),
        k(fmt::format("tensor<{}x{}x{}x{}x{}>", s.batch, keys, s.kvHeads,
                      s.headDim, element)),
        lse(fmt::format("tensor<{}x{}x{}xf32>", s.batch, s.heads, s.tokens)),
        // 1 / sqrt of the width, of which 0.2 is none: products with it round.
        mask(fmt::format(
            "scale 0.2 {{causal{}{}}}",
            s.window ? fmt::format(", window = {} : i64", s.window) : "",
            s.cap ? fmt::format(", cap = {:.1f} : f64", s.cap) : "")) {}
  std::string q, k, lse, mask;
};

std::string text(const Shape &s, const char *element) {
  const auto [q, k, lse, mask] = Parts(s, s.tokens, element);
  const std::string sinks = fmt::format(": tensor<{}xf32>", s.heads);
  return fmt::format(R"(
func.func @main(%q: {0}, %k: {1}, %v: {1}, %d: {0}{4}) -> ({0}, {2}, {0}, {1}, {1}) {{
  %a:2 = graph.attention %q, %k, %v {5}{3} : {0}, {1}, {1} -> {0}, {2}
  %g:3 = graph.attention_grad %q, %k, %v, %a#0, %a#1, %d {3} : {0}, {1}, {1}, {0}, {2}, {0}
  return %a#0, %a#1, %g#0, %g#1, %g#2 : {0}, {2}, {0}, {1}, {1}
}})",
                     q, k, lse, mask, s.sinks ? ", %z" + sinks : "",
                     s.sinks ? "sinks %z " + sinks + " " : "");
}

/// Queries that stand from `start` on among `keys`.
struct Started {
  Shape shape;
  int keys, start;
};

// What a query that sees no key has for a log-sum-exp is up to the kernel.
void add(std::vector<KernelCase> &cases, const Started &c,
         const char *element) {
  const Shape &s = c.shape;
  const auto [q, k, lse, mask] = Parts(s, c.keys, element);
  cases.push_back(
      {fmt::format("Attention{}x{}x{}over{}x{}window{}Of{}From{}{}_{}", s.batch,
                   s.tokens, s.heads, s.kvHeads, s.headDim, s.window, c.keys,
                   c.start < 0 ? "Minus" : "", std::abs(c.start), element),
       fmt::format(R"(
func.func @main(%q: {0}, %k: {1}, %v: {1}, %d: {0}) -> ({0}, {0}, {1}, {1}) {{
  %s = graph.constant dense<{4}> : tensor<i32>
  %a:2 = graph.attention %q, %k, %v start %s {3} : {0}, {1}, {1}, tensor<i32> -> {0}, {2}
  %g:3 = graph.attention_grad %q, %k, %v, %a#0, %a#1, %d start %s {3} : {0}, {1}, {1}, {0}, {2}, {0}, tensor<i32>
  return %a#0, %g#0, %g#1, %g#2 : {0}, {0}, {1}, {1}
}})",
                   q, k, lse, mask, c.start),
       -2, 2, element[0] == 'f' ? 1e-5 : 2e-2});
}

/// Packed documents of 1 to `longest` tokens, which begin where others do in
/// each sequence. Queries stand from `start` on among `keys`, as in Started.
/// The first tokens of documents may be prompts, whose tokens see each other.
struct Packed {
  Shape shape;
  int longest;
  int keys = 0, start = 0; ///< keys 0: the queries' own
  bool prompts = false;
};

Packed withPrompts(Packed c) {
  c.prompts = true;
  return c;
}

/// [batch, tokens] of where documents begin, and if `last` is there, where
/// their prompts end; before any key if they have none.
void fillMask(interpreter::Tensor &first, interpreter::Tensor *last,
              const Packed &c) {
  uint32_t random = 1;
  for (int b = 0, at = 0; b < c.shape.batch; ++b) {
    int begin = 0, end = 0, prompt = 0;
    for (int t = 0; t < c.shape.tokens; ++t, ++at) {
      if (t == end) {
        random = random * 1664525 + 1013904223;
        begin = t;
        end = t + 1 + static_cast<int>(random >> 16) % c.longest;
        prompt = static_cast<int>(random >> 8) % (end - begin + 1);
      }
      first.data[at] = begin + c.start;
      if (last)
        last->data[at] =
            prompt ? std::min(begin + prompt, c.shape.tokens) - 1 + c.start
                   : -1000;
    }
  }
}

// Inputs are q, k, v, d, the first keys and, with prompts, the last ones.
void add(std::vector<KernelCase> &cases, const Packed &c, const char *element) {
  const Shape &s = c.shape;
  const bool isStarted = c.keys != 0;
  const auto [q, k, lse, mask] =
      Parts(s, isStarted ? c.keys : s.tokens, element);
  const std::string first = fmt::format("tensor<{}x{}xi32>", s.batch, s.tokens),
                    start = isStarted ? "start %s " : "",
                    type = isStarted ? ", tensor<i32>" : "",
                    last = c.prompts ? "last %l : " + first + " " : "",
                    more = c.prompts ? ", %l: " + first : "";
  cases.push_back(
      {fmt::format(
           "PackedAttention{}{}x{}x{}over{}x{}window{}Longest{}From{}{}_{}",
           c.prompts ? "Prompts" : "", s.batch, s.tokens, s.heads, s.kvHeads,
           s.headDim, s.window, c.longest, c.start < 0 ? "Minus" : "",
           std::abs(c.start), element),
       fmt::format(R"(
func.func @main(%q: {0}, %k: {1}, %v: {1}, %d: {0}, %f: {5}{9}) -> ({0}, {0}, {1}, {1}) {{
  %s = graph.constant dense<{4}> : tensor<i32>
  %a:2 = graph.attention %q, %k, %v {6}first %f : {5} {8}{3} : {0}, {1}, {1}{7} -> {0}, {2}
  %g:3 = graph.attention_grad %q, %k, %v, %a#0, %a#1, %d {6}first %f : {5} {8}{3} : {0}, {1}, {1}, {0}, {2}, {0}{7}
  return %a#0, %g#0, %g#1, %g#2 : {0}, {0}, {1}, {1}
}})",
                   q, k, lse, mask, c.start, first, start, type, last, more),
       -2, 2, element[0] == 'f' ? 1e-5 : 2e-2,
       [c](std::vector<interpreter::Tensor> &inputs) {
         fillMask(inputs[4], c.prompts ? &inputs[5] : nullptr, c);
       }});
}

std::vector<KernelCase> make() {
  std::vector<KernelCase> cases;
  for (Packed c :
       {Packed{{2, 139, 4, 2, 16, 0}, 40}, Packed{{1, 200, 2, 1, 64, 21}, 90},
        Packed{{2, 33, 2, 2, 12, 0}, 2}, Packed{{1, 200, 2, 1, 64, 0}, 300},
        Packed{{2, 130, 1, 1, 5, 0}, 7},
        Packed{{1, 70, 2, 1, 16, 0}, 30, 90, 20},
        Packed{{1, 64, 2, 1, 64, 0}, 20, 64, -20},
        Packed{{1, 64, 2, 1, 64, 0}, 80, 64, 64},
        // Fewer queries than a tile has, and keys than a register tile.
        Packed{{2, 5, 2, 1, 16, 0}, 2}, Packed{{2, 9, 2, 2, 16, 3}, 4},
        Packed{{1, 90, 1, 1, 16, 0}, 15}})
    for (const char *element : {"f32", "bf16"})
      for (const Packed &each : {c, withPrompts(c)})
        add(cases, each, element);
  for (Packed c :
       {Packed{{2, 450, 2, 1, 64, 0}, 150}, Packed{{1, 400, 1, 1, 128, 0}, 60},
        Packed{{1, 200, 1, 1, 192, 100}, 120},
        Packed{{1, 150, 2, 2, 256, 0}, 80},
        Packed{{1, 130, 2, 1, 64, 0}, 50, 200, 70}})
    for (const Packed &each : {c, withPrompts(c)})
      add(cases, each, "bf16");
  for (Shape s : {Shape{2, 139, 4, 2, 16, 21}, Shape{1, 67, 3, 3, 20, 0},
                  Shape{1, 200, 2, 1, 64, 5}, Shape{1, 129, 2, 1, 5, 64},
                  Shape{1, 192, 1, 1, 16, 65}, Shape{2, 7, 2, 1, 8, 0},
                  Shape{1, 3, 4, 2, 5, 2}, Shape{1, 33, 2, 2, 12, 3}})
    for (const char *element : {"f32", "bf16"})
      cases.push_back({fmt::format("Attention{}x{}x{}over{}x{}window{}_{}",
                                   s.batch, s.tokens, s.heads, s.kvHeads,
                                   s.headDim, s.window, element),
                       text(s, element), -2, 2,
                       element[0] == 'f' ? 1e-5 : 2e-2});
  // What sm_90a has kernels with roles for: one tile of queries or of keys,
  // more than a ring has stages, two and three warpgroups, heads of every
  // choice.
  for (Shape s : {Shape{1, 72, 2, 1, 64, 0}, Shape{2, 200, 4, 2, 64, 0},
                  Shape{1, 450, 1, 1, 64, 70}, Shape{1, 128, 1, 1, 96, 0},
                  Shape{1, 136, 2, 1, 128, 0}, Shape{1, 400, 1, 1, 128, 0},
                  Shape{1, 200, 1, 1, 192, 100}, Shape{1, 150, 2, 2, 256, 0},
                  Shape{1, 80, 1, 1, 72, 0}})
    cases.push_back(
        {fmt::format("Attention{}x{}x{}over{}x{}window{}_bf16", s.batch,
                     s.tokens, s.heads, s.kvHeads, s.headDim, s.window),
         text(s, "bf16"), -2, 2, 2e-2});
  for (Started s : {Started{{1, 70, 2, 1, 16, 0}, 70, 70},
                    Started{{1, 40, 2, 2, 8, 9}, 90, 33},
                    Started{{2, 33, 2, 1, 20, 0}, 129, 96},
                    Started{{1, 50, 2, 1, 5, 0}, 67, -20},
                    Started{{1, 45, 1, 1, 16, 6}, 64, 47},
                    Started{{1, 7, 2, 1, 8, 0}, 5, -30},
                    Started{{1, 64, 2, 1, 64, 0}, 64, -64}})
    for (const char *element : {"f32", "bf16"})
      add(cases, s, element);
  // Caps low enough to bend most scores, and to mask beside them.
  for (Shape s : {Shape{1, 139, 4, 2, 16, 21, 1.5}, Shape{2, 33, 1, 1, 5, 0, 3},
                  Shape{1, 150, 2, 1, 64, 0, 1}})
    for (const char *element : {"f32", "bf16"})
      cases.push_back(
          {fmt::format("CappedAttention{}x{}x{}window{}_{}", s.batch, s.tokens,
                       s.headDim, s.window, element),
           text(s, element), -2, 2, element[0] == 'f' ? 1e-5 : 2e-2});
  // Sinks take some of the weight. A wide head is another kernel of a GPU.
  for (Shape s :
       {Shape{1, 139, 4, 2, 16, 21, 0, true}, Shape{2, 33, 2, 1, 5, 0, 0, true},
        Shape{1, 150, 4, 2, 64, 0, 1.5, true},
        Shape{1, 130, 2, 1, 128, 0, 0, true}})
    for (const char *element : {"f32", "bf16"})
      cases.push_back({fmt::format("SinksAttention{}x{}x{}window{}_{}", s.batch,
                                   s.tokens, s.headDim, s.window, element),
                       text(s, element), -2, 2,
                       element[0] == 'f' ? 1e-5 : 2e-2});
  for (Started s : {Started{{1, 130, 2, 1, 64, 0}, 200, 70},
                    Started{{1, 100, 1, 1, 128, 50}, 150, 90},
                    Started{{1, 100, 1, 1, 64, 0}, 100, -100},
                    Started{{1, 72, 1, 1, 192, 0}, 136, 64}})
    add(cases, s, "bf16");
  return cases;
}

// Heads as models have them, too much work for an emulator.
std::vector<KernelCase> makeLarge() {
  std::vector<KernelCase> cases;
  for (int headDim : {64, 96, 128, 192, 256})
    for (const char *element : {"f32", "bf16"})
      if (headDim <= 128 || element[0] == 'b')
        cases.push_back(
            {fmt::format("LargeAttention{}_{}", headDim, element),
             text({2, 1024, 8, 4, headDim, headDim == 96 ? 200 : 0}, element),
             -2, 2, 0});
  // Other masks and loops are other code between products in flight.
  for (int headDim : {64, 80, 128, 256})
    cases.push_back({fmt::format("LargeAttention{}Ragged_bf16", headDim),
                     text({4, 333, 8, 8, headDim, 100}, "bf16"), -2, 2, 0});
  // A share's queries over the keys of another.
  for (int headDim : {64, 96, 128, 192, 256})
    add(cases, Started{{2, 512, 8, 4, headDim, 0}, 512, -1}, "bf16");
  add(cases, Started{{2, 512, 8, 4, 128, 100}, 700, 188}, "bf16");
  add(cases, Started{{2, 512, 8, 4, 64, 0}, 512, -1}, "f32");
  for (int headDim : {64, 96, 128, 192, 256})
    for (const Packed &each : {Packed{{2, 512, 8, 4, headDim, 0}, 200},
                               withPrompts({{2, 512, 8, 4, headDim, 0}, 200})})
      add(cases, each, "bf16");
  for (const Packed &each : {Packed{{2, 512, 8, 4, 64, 0}, 200},
                             withPrompts({{2, 512, 8, 4, 64, 0}, 200})})
    add(cases, each, "f32");
  return cases;
}

} // namespace

const std::vector<KernelCase> &largeAttentionCases() {
  static const std::vector<KernelCase> cases = makeLarge();
  return cases;
}

const std::vector<KernelCase> &attentionCases() {
  static const std::vector<KernelCase> cases = make();
  return cases;
}

} // namespace tessera::testing
