// Products with quantized weights: few rows, which stream them, and many, which
// widen panels; both kinds of integers, and floats, ragged in every dimension.
#include "runtime/support/Floats.h"
#include "runtime/support/QuantizedLayout.h"
#include "test/passes/kernels/KernelCases.h"
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <random>

namespace tessera::testing {
namespace {

struct Shape {
  const char *name;
  int64_t rows, n, k, bits, group;
  bool zeros = false, floats = false, superBlocks = false;

  QuantizedLayout layout(int64_t matrices = 1) const {
    return {matrices * n, k, bits, group, zeros, floats, superBlocks};
  }
  bool isNf4() const { return layout().nf4(); }
  const char *scales() const { return layout().scaleWords() ? "i32" : "f16"; }
  /// As graph.dequantize has them.
  std::string attributes() const {
    return fmt::format("bits {} group {} {} {} {}", bits, group,
                       zeros ? "zeros" : "", floats ? "floats" : "",
                       superBlocks ? "super_blocks" : "");
  }
};

int64_t middleOf(const QuantizedLayout &layout) {
  return layout.words() * (layout.hasScales() ? 1 : layout.perWord());
}

std::string shapes(const QuantizedLayout &layout, int64_t middle) {
  return fmt::format("{}x{}x{}", layout.micropanels(), middle, kMicropanel);
}

// e4m3 whose exponent and fraction are all ones is no number.
uint32_t withoutNan(uint64_t word) {
  for (int at = 0; at < 32; at += 8)
    if ((word >> at & 0x7f) == 0x7f)
      word ^= uint64_t(1) << at;
  return static_cast<uint32_t>(word);
}

// Scales of NF4 are words: the offset, absmax2, then any bits.
void drawNormalFloats(const QuantizedLayout &layout,
                      interpreter::Tensor &values,
                      interpreter::Tensor &scales) {
  std::mt19937_64 engine(11);
  for (double &word : values.data)
    word = static_cast<int32_t>(engine());
  const int64_t rows = layout.scaleRows();
  for (size_t i = 0; i < scales.data.size(); ++i) {
    const int64_t row = int64_t(i) / 16 % rows;
    const float number =
        (row == 0 ? 1.0f : 0.25f) / 64 * (1 + float(engine() % 8) / 16);
    scales.data[i] = row <= layout.nf4Spans() ? std::bit_cast<int32_t>(number)
                                              : static_cast<int32_t>(engine());
  }
}

// Scales of super-blocks are words: d and dmin of about that size, then bytes,
// of 6 bits where there are minima.
void drawSuperBlocks(const QuantizedLayout &layout, interpreter::Tensor &values,
                     interpreter::Tensor &scales) {
  std::mt19937_64 engine(13);
  for (double &word : values.data)
    word = static_cast<int32_t>(engine());
  const uint32_t mask = layout.bits < 6 ? 0x3f3f3f3f : 0xffffffff;
  for (size_t i = 0; i < scales.data.size(); ++i) {
    auto half = [&] {
      const float number = (1 + float(engine() % 63)) / 65536;
      return uint32_t(floatToF16(engine() % 2 ? number : -number));
    };
    const uint32_t word =
        i / 16 % 5 ? uint32_t(engine()) & mask : half() | half() << 16;
    scales.data[i] = static_cast<int32_t>(word);
  }
}

// Scales of MXFP4 are words of four exponents, of which 0 is a subnormal's.
void drawMxfp4(interpreter::Tensor &values, interpreter::Tensor &scales) {
  std::mt19937_64 engine(17);
  for (double &word : values.data)
    word = static_cast<int32_t>(engine());
  for (double &word : scales.data) {
    uint32_t bytes = 0;
    for (int at = 0; at < 32; at += 8)
      bytes |= uint32_t(engine() % 8 ? 114 + engine() % 6 : 0) << at;
    word = static_cast<int32_t>(bytes);
  }
}

void drawValues(const QuantizedLayout &layout, interpreter::Tensor &values,
                interpreter::Tensor &scales) {
  if (layout.nf4())
    return drawNormalFloats(layout, values, scales);
  if (layout.mxfp4())
    return drawMxfp4(values, scales);
  if (layout.superBlocks)
    return drawSuperBlocks(layout, values, scales);
  std::mt19937_64 engine(7);
  // Any bits are values; scales as f16 has them.
  for (double &word : values.data)
    word = static_cast<int32_t>(layout.floats ? withoutNan(engine())
                                              : uint32_t(engine()));
  for (double &scale : scales.data)
    scale = (1 + double(engine() % 63)) / 1024 * (engine() % 2 ? 1 : -1);
  for (size_t i = 0; layout.zeros && i < scales.data.size(); ++i)
    if (i / 16 % 2)
      scales.data[i] = layout.bits == 4 ? double(engine() % 17) - 8
                                        : double(engine() % 257) - 128;
}

KernelCase make(const Shape &shape, const char *element, bool transposed,
                bool epilogue) {
  QuantizedLayout layout = shape.layout();
  std::string x = fmt::format("tensor<1x{}x{}x{}>", shape.rows, shape.k,
                              element),
              q = fmt::format("tensor<{}x{}>", shapes(layout, middleOf(layout)),
                              shape.bits == 16 ? "bf16" : "i32"),
              s = fmt::format("tensor<{}x{}>",
                              shapes(layout, layout.scaleRows()),
                              shape.scales()),
              w = fmt::format("tensor<{}x{}x{}>",
                              transposed ? shape.k : shape.n,
                              transposed ? shape.n : shape.k, element),
              y = fmt::format("tensor<1x{}x{}xf32>", shape.rows, shape.n);
  bool isMicropanels = !layout.hasScales();
  std::string text = fmt::format(
      R"(
func.func @main(%x: {0}, %q: {1}, %s: {2}, %b: tensor<{3}xf32>) -> {4} {{
  %w = graph.dequantize %q{9} {5} {6} : {1}{10} -> {7}
  %p = graph.einsum "{8}" %x, %w : ({0}, {7}) -> {4}
)",
      x, q, s, shape.n, y, shape.attributes(), transposed ? "transposed" : "",
      w, transposed ? "btk,kn->btn" : "btk,nk->btn",
      isMicropanels ? "" : ", %s", isMicropanels ? "" : ", " + s);
  if (epilogue)
    text += fmt::format("  %c = graph.broadcast %b dims [2] : tensor<{0}xf32> "
                        "-> {1}\n  %d = graph.add %p, %c : {1}\n  %e = "
                        "graph.gelu %d tanh : {1}\n  return %e : {1}\n}}",
                        shape.n, y);
  else
    text += fmt::format("  return %p : {}\n}}", y);
  bool isExact = std::string(element) == "f32";
  // In bf16 panels hold weights that are rounded to it; few rows are integers
  // of 15 bits.
  double tolerance = isExact || isMicropanels           ? 1e-5
                     : shape.rows > 16 || shape.isNf4() ? 1e-2
                                                        : 1e-4;
  KernelCase made{fmt::format("{}_{}{}{}", shape.name, element,
                              transposed ? "_transposed" : "",
                              epilogue ? "_gelu" : ""),
                  text, -1, 1, tolerance};
  if (isMicropanels)
    return made;
  made.prepare = [layout](std::vector<interpreter::Tensor> &inputs) {
    drawValues(layout, inputs[1], inputs[2]);
  };
  return made;
}

// The gradient of a linear layer's input, dY W: sums over the matrix's rows,
// with columns as heads of 32 if `heads`.
KernelCase makeRowSums(const Shape &shape, const char *element, bool transposed,
                       bool heads) {
  QuantizedLayout layout = shape.layout();
  std::string dy = fmt::format("tensor<1x{}x{}x{}>", shape.rows, shape.n,
                               element),
              q = fmt::format("tensor<{}xi32>", shapes(layout, layout.words())),
              s = fmt::format("tensor<{}x{}>",
                              shapes(layout, layout.scaleRows()),
                              shape.scales()),
              w = fmt::format("tensor<{}x{}x{}>",
                              transposed ? shape.k : shape.n,
                              transposed ? shape.n : shape.k, element),
              dx = fmt::format("tensor<1x{}x{}xf32>", shape.rows, shape.k),
              h = fmt::format("tensor<1x{}x{}x32xf32>", shape.rows,
                              shape.k / 32);
  std::string text = fmt::format(
      R"(
func.func @main(%dy: {0}, %q: {1}, %s: {2}) -> {8} {{
  %w = graph.dequantize %q, %s {3} {4} : {1}, {2} -> {5}
  %p = graph.einsum "{6}" %dy, %w : ({0}, {5}) -> {7}
)",
      dy, q, s, shape.attributes(), transposed ? "transposed" : "", w,
      transposed ? "btn,kn->btk" : "btn,nk->btk", dx, heads ? h : dx);
  text += heads ? fmt::format("  %h = graph.reshape %p : {} -> {}\n"
                              "  return %h : {}\n}}",
                              dx, h, h)
                : fmt::format("  return %p : {}\n}}", dx);
  KernelCase made{fmt::format("RowSums{}_{}{}{}", shape.name, element,
                              transposed ? "_transposed" : "",
                              heads ? "_heads" : ""),
                  text, -1, 1, std::string(element) == "f32" ? 1e-5 : 1e-2};
  made.prepare = [layout](std::vector<interpreter::Tensor> &inputs) {
    drawValues(layout, inputs[1], inputs[2]);
  };
  return made;
}

// Rows of the matrix, the first and the last among them, as bits of its
// dequantized form.
KernelCase makeRows(const Shape &shape, const char *element) {
  const QuantizedLayout layout = shape.layout();
  const bool isMicropanels = !layout.hasScales();
  std::string q = fmt::format("tensor<{}x{}>", shapes(layout, middleOf(layout)),
                              isMicropanels ? "bf16" : "i32"),
              s = fmt::format("tensor<{}x{}>",
                              shapes(layout, layout.scaleRows()),
                              shape.scales()),
              w = fmt::format("tensor<{}x{}x{}>", shape.n, shape.k, element),
              i = fmt::format("tensor<{}xi32>", shape.rows),
              y = fmt::format("tensor<{}x{}x{}>", shape.rows, shape.k, element);
  KernelCase made{
      fmt::format("Lookup{}_{}", shape.name, element),
      fmt::format(R"(
func.func @main(%i: {0}, %q: {1}, %s: {2}) -> {4} {{
  %w = graph.dequantize %q{5} {6} : {1}{7} -> {3}
  %y = graph.embedding %w, %i : ({3}, {0}) -> {4}
  return %y : {4}
}})",
                  i, q, s, w, y, isMicropanels ? "" : ", %s",
                  shape.attributes(), isMicropanels ? "" : ", " + s),
      -1, 1,
      // The interpreter does not round to bf16.
      std::string(element) == "f32" || isMicropanels ? 0.0 : 0x1p-8};
  made.prepare = [=](std::vector<interpreter::Tensor> &inputs) {
    for (int64_t row = 0; row < shape.rows; ++row)
      inputs[0].data[row] = double((shape.n - 1) * row / (shape.rows - 1));
    if (!isMicropanels)
      drawValues(layout, inputs[1], inputs[2]);
  };
  return made;
}

void addNormalFloats(std::vector<KernelCase> &cases) {
  auto nf4 = [](const char *name, int64_t rows, int64_t n, int64_t k) {
    return Shape{name, rows, n, k, 4, 64, false, true};
  };
  // Rows with part of one 256 of absmax, of two, and of three; several chunks
  // of the sum, panels of several widths.
  const Shape shapes[] = {
      nf4("Nf4One", 1, 32, 64),      nf4("Nf4Few", 7, 48, 192),
      nf4("Nf4Many", 45, 176, 320),  nf4("Nf4Packed", 101, 240, 1152),
      nf4("Nf4Deep", 40, 64, 16512), nf4("Nf4Wide", 33, 4144, 64),
      nf4("Nf4Spans", 3, 48, 28672)};
  for (const char *element : {"f32", "bf16"})
    for (const Shape &shape : shapes) {
      cases.push_back(make(shape, element, false, shape.rows % 2));
      cases.push_back(makeRowSums(shape, element, false, false));
    }
  cases.push_back(make(shapes[2], "bf16", true, true));
  cases.push_back(makeRowSums(shapes[2], "bf16", true, false));
  cases.push_back(makeRowSums(shapes[2], "f32", true, true));
  cases.push_back(makeRowSums(shapes[3], "bf16", false, true));
  const Shape others[] = {{"Int8", 37, 80, 144, 8, 64},
                          {"Int4Zeros", 29, 96, 176, 4, 32, true},
                          {"Fp8", 45, 128, 128, 8, 128, false, true}};
  for (const Shape &shape : others) {
    cases.push_back(makeRowSums(shape, "f32", false, false));
    cases.push_back(makeRowSums(shape, "bf16", false, false));
  }
}

void addMxfp4(std::vector<KernelCase> &cases) {
  auto mxfp4 = [](const char *name, int64_t rows, int64_t n, int64_t k) {
    return Shape{name, rows, n, k, 4, 32, false, true};
  };
  const Shape shapes[] = {mxfp4("Mxfp4One", 1, 64, 64),
                          mxfp4("Mxfp4OneRagged", 1, 75, 160),
                          mxfp4("Mxfp4FiveRows", 5, 300, 96),
                          mxfp4("Mxfp4SixteenRows", 16, 280, 288),
                          mxfp4("Mxfp4Many", 45, 128, 128),
                          mxfp4("Mxfp4ManyRagged", 37, 70, 96),
                          mxfp4("Mxfp4ManyDeep", 24, 52, 8224),
                          mxfp4("Mxfp4Packed", 101, 72, 1152),
                          mxfp4("Mxfp4PackedPanels", 77, 192, 1152)};
  for (const char *element : {"f32", "bf16"}) {
    for (const Shape &shape : shapes)
      cases.push_back(make(shape, element, false, shape.rows % 2));
    cases.push_back(
        makeRowSums(mxfp4("Mxfp4", 37, 80, 288), element, false, false));
    cases.push_back(makeRows(mxfp4("Mxfp4", 37, 75, 160), element));
  }
  cases.push_back(make(shapes[1], "f32", true, true));
  cases.push_back(make(shapes[5], "bf16", true, true));
}

void addSuperBlocks(std::vector<KernelCase> &cases) {
  auto super = [](const char *name, int64_t rows, int64_t n, int64_t k,
                  int64_t bits) {
    return Shape{name, rows, n, k, bits, 256, false, false, true};
  };
  for (int64_t bits : {4, 5, 6}) {
    const Shape few[] = {super("SuperOne", 1, 64, 256, bits),
                         super("SuperOneRagged", 1, 75, 768, bits),
                         super("SuperFiveRows", 5, 300, 512, bits),
                         super("SuperSixteenRows", 16, 280, 512, bits)};
    const Shape many[] = {super("SuperMany", 45, 128, 256, bits),
                          super("SuperManyRagged", 37, 83, 512, bits),
                          // Several chunks of the sum; packed rows, and
                          // panels that are widened beside products.
                          super("SuperManyDeep", 24, 52, 8448, bits),
                          super("SuperPacked", 101, 72, 1280, bits),
                          super("SuperPackedPanels", 200, 256, 1280, bits)};
    auto add = [&](KernelCase one) {
      one.name = fmt::format("{}_{}bits", one.name, bits);
      cases.push_back(std::move(one));
    };
    for (const char *element : {"f32", "bf16"}) {
      for (const Shape &shape : few)
        add(make(shape, element, false, shape.rows > 1));
      for (const Shape &shape : many)
        add(make(shape, element, false, shape.rows % 2));
      add(makeRowSums(super("Super", 37, 80, 512, bits), element, false,
                      false));
      add(makeRowSums(super("SuperHeads", 3, 96, 256, bits), element, false,
                      true));
    }
    add(make(few[2], "f32", true, true));
    add(make(many[1], "bf16", true, false));
    add(makeRowSums(many[0], "bf16", true, false));
  }
}

void addRows(std::vector<KernelCase> &cases) {
  const Shape shapes[] = {
      {"Int8", 37, 75, 104, 8, 64},
      {"Int8Zeros", 5, 70, 105, 8, 32, true},
      {"Int4", 19, 33, 37, 4, 32},
      {"Int4Zeros", 7, 75, 130, 4, 64, true},
      {"Fp8", 19, 64, 105, 8, 64, false, true},
      // Several blocks of rows.
      {"Super4", 40, 75, 768, 4, 256, false, false, true},
      {"Super5", 19, 64, 512, 5, 256, false, false, true},
      {"Super6", 19, 33, 512, 6, 256, false, false, true},
  };
  for (const Shape &shape : shapes)
    for (const char *element : {"f32", "bf16"})
      cases.push_back(makeRows(shape, element));
  cases.push_back(makeRows({"Micropanels", 37, 75, 105, 16, 32}, "bf16"));
}

/// Rows of experts, by where each one's begin; those behind the last are of
/// none, and no numbers.
struct Experts {
  const char *name;
  std::vector<double> offsets;
  int64_t rows;
  Shape matrix; ///< of each; its rows are not meant
};

// Both products of a gated layer: the same rows, and the gate on the
// accumulators of the second.
KernelCase make(const Experts &experts, const char *element) {
  const Shape &shape = experts.matrix;
  auto count = int64_t(experts.offsets.size()) - 1;
  QuantizedLayout layout = shape.layout(count);
  std::string x = fmt::format("tensor<{}x{}x{}>", experts.rows, shape.k,
                              element),
              q = fmt::format("tensor<{}xi32>",
                              shapes(layout, middleOf(layout))),
              s = fmt::format("tensor<{}x{}>",
                              shapes(layout, layout.scaleRows()),
                              shape.scales()),
              w = fmt::format("tensor<{}x{}x{}x{}>", count, shape.n, shape.k,
                              element),
              g = fmt::format("tensor<{}xi32>", count + 1),
              y = fmt::format("tensor<{}x{}xf32>", experts.rows, shape.n);
  std::string text = fmt::format(
      R"(
func.func @main(%x: {0}, %q: {1}, %s: {2}, %r: {1}, %t: {2}, %g: {3}) -> {4} {{
  %v = graph.dequantize %q, %s {6} : {1}, {2} -> {5}
  %w = graph.dequantize %r, %t {6} : {1}, {2} -> {5}
  %gate = graph.grouped_matmul %x, %v groups %g {{transposed}} : ({0}, {5}, {3}) -> {4}
  %up = graph.grouped_matmul %x, %w groups %g {{transposed}} : ({0}, {5}, {3}) -> {4}
  %act = graph.silu %gate : {4}
  %y = graph.mul %act, %up : {4}
  return %y : {4}
}})",
      x, q, s, g, y, w, shape.attributes());
  // As above.
  bool few = experts.rows <= 16 * count;
  KernelCase made{
      fmt::format("Experts{}{}_{}", experts.name, shape.name, element), text,
      -1, 1,
      std::string(element) == "f32" ? 1e-5
      : few                         ? 2e-4
                                    : 2e-2};
  made.prepare = [=](std::vector<interpreter::Tensor> &inputs) {
    drawValues(layout, inputs[1], inputs[2]);
    drawValues(layout, inputs[3], inputs[4]);
    inputs[5].data = experts.offsets;
    auto owned = size_t(experts.offsets.back()) * size_t(shape.k);
    std::fill(inputs[0].data.begin() + owned, inputs[0].data.end(), NAN);
  };
  return made;
}

// Products with a stack [matrices, in, out], or, the gradient of the rows, sums
// over the rows of each expert's matrix.
KernelCase makeUntransposed(const Experts &experts, const char *element,
                            bool sumsColumns) {
  const Shape &shape = experts.matrix;
  auto count = int64_t(experts.offsets.size()) - 1;
  QuantizedLayout layout = shape.layout(count);
  const int64_t in = sumsColumns ? shape.k : shape.n,
                out = sumsColumns ? shape.n : shape.k;
  std::string dy = fmt::format("tensor<{}x{}x{}>", experts.rows, in, element),
              q = fmt::format("tensor<{}xi32>",
                              shapes(layout, middleOf(layout))),
              s = fmt::format("tensor<{}x{}>",
                              shapes(layout, layout.scaleRows()),
                              shape.scales()),
              w = fmt::format("tensor<{}x{}x{}x{}>", count, in, out, element),
              g = fmt::format("tensor<{}xi32>", count + 1),
              dx = fmt::format("tensor<{}x{}xf32>", experts.rows, out);
  std::string text = fmt::format(
      R"(
func.func @main(%dy: {0}, %q: {1}, %s: {2}, %g: {3}) -> {4} {{
  %w = graph.dequantize %q, %s {6} {7} : {1}, {2} -> {5}
  %dx = graph.grouped_matmul %dy, %w groups %g : ({0}, {5}, {3}) -> {4}
  return %dx : {4}
}})",
      dy, q, s, g, dx, w, shape.attributes(), sumsColumns ? "transposed" : "");
  KernelCase made{fmt::format("{}Experts{}{}_{}",
                              sumsColumns ? "Transposed" : "RowSums",
                              experts.name, shape.name, element),
                  text, -1, 1, std::string(element) == "f32" ? 1e-5 : 1e-2};
  made.prepare = [=](std::vector<interpreter::Tensor> &inputs) {
    drawValues(layout, inputs[1], inputs[2]);
    inputs[3].data = experts.offsets;
    auto owned = size_t(experts.offsets.back()) * size_t(in);
    std::fill(inputs[0].data.begin() + owned, inputs[0].data.end(), NAN);
  };
  return made;
}

// The same with weights of bf16 in micropanels.
KernelCase makeMicropanels(const Experts &experts) {
  const Shape &shape = experts.matrix;
  auto count = int64_t(experts.offsets.size()) - 1;
  QuantizedLayout layout{count * shape.n, shape.k, 16, shape.group};
  std::string x = fmt::format("tensor<{}x{}xbf16>", experts.rows, shape.k),
              q = fmt::format("tensor<{}xbf16>",
                              shapes(layout, middleOf(layout))),
              w = fmt::format("tensor<{}x{}x{}xbf16>", count, shape.n, shape.k),
              g = fmt::format("tensor<{}xi32>", count + 1),
              y = fmt::format("tensor<{}x{}xf32>", experts.rows, shape.n);
  std::string text = fmt::format(
      R"(
func.func @main(%x: {0}, %q: {1}, %r: {1}, %g: {2}) -> {3} {{
  %v = graph.dequantize %q bits 16 group {5} : {1} -> {4}
  %w = graph.dequantize %r bits 16 group {5} : {1} -> {4}
  %gate = graph.grouped_matmul %x, %v groups %g {{transposed}} : ({0}, {4}, {2}) -> {3}
  %up = graph.grouped_matmul %x, %w groups %g {{transposed}} : ({0}, {4}, {2}) -> {3}
  %act = graph.silu %gate : {3}
  %y = graph.mul %act, %up : {3}
  return %y : {3}
}})",
      x, q, g, y, w, shape.group);
  KernelCase made{fmt::format("Experts{}Micropanels{}", experts.name, shape.k),
                  text, -1, 1, 1e-5};
  made.prepare = [=](std::vector<interpreter::Tensor> &inputs) {
    inputs[3].data = experts.offsets;
    auto owned = size_t(experts.offsets.back()) * size_t(shape.k);
    std::fill(inputs[0].data.begin() + owned, inputs[0].data.end(), NAN);
  };
  return made;
}

void addExperts(std::vector<KernelCase> &cases) {
  const Shape int8{"Int8", 0, 48, 72, 8, 32}, int4{"Int4", 0, 32, 160, 4, 64},
      int8Zeros{"Int8Zeros", 0, 16, 105, 8, 32, true},
      int4Zeros{"Int4Zeros", 0, 304, 96, 4, 32, true},
      int8Deep{"Int8Deep", 0, 80, 1152, 8, 64},
      fp8{"Fp8", 0, 48, 105, 8, 64, false, true},
      super5{"Super5", 0, 48, 512, 5, 256, false, false, true},
      super6{"Super6", 0, 80, 256, 6, 256, false, false, true},
      mxfp4{"Mxfp4", 0, 48, 160, 4, 32, false, true};
  std::vector<double> many(65, 6);
  std::fill(many.begin(), many.begin() + 9, 0);
  std::fill(many.begin() + 9, many.begin() + 40, 1);
  const Experts all[] = {
      // A token of few experts, one of many, and none.
      {"OneToken", {0, 0, 1, 1, 1, 2, 2}, 2, int8},
      {"OneOfMany", many, 6, int4},
      {"OneRow", {0, 0, 1, 1}, 1, int8Zeros},
      {"None", {0, 0, 0, 0}, 5, int4},
      // Some tokens, of which several have one expert; a prompt.
      {"Few", {0, 3, 3, 10, 12}, 14, int4Zeros},
      {"Few", {0, 7, 7, 13, 16}, 16, int8},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, int8},
      {"Prompt", {0, 5, 90, 90, 190}, 200, int4Zeros},
      {"Prompt", {0, 0, 0, 130, 130}, 130, int8Zeros},
      {"Prompt", {0, 17, 150, 151, 260}, 270, int8Deep},
      {"OneToken", {0, 0, 1, 1, 1, 2, 2}, 2, fp8},
      {"Few", {0, 7, 7, 13, 16}, 16, fp8},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, fp8},
      {"OneOfMany", many, 6, super5},
      {"Few", {0, 7, 7, 13, 16}, 16, super6},
      {"Few", {0, 3, 3, 10, 12}, 14, super5},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, super5},
      {"Prompt", {0, 17, 150, 151, 260}, 270, super6},
      {"OneOfMany", many, 6, mxfp4},
      {"Few", {0, 3, 3, 10, 12}, 14, mxfp4},
      {"Prompt", {0, 37, 38, 38, 101, 140}, 140, mxfp4},
  };
  for (const char *element : {"f32", "bf16"})
    for (const Experts &experts : all)
      cases.push_back(make(experts, element));
  // Rows and columns are whole micropanels.
  const Shape wide{"Int8Wide", 0, 48, 96, 8, 32},
      high{"Int4High", 0, 192, 64, 4, 64, true};
  const Experts sums[] = {{"Few", {0, 0, 1, 1, 3}, 4, wide},
                          {"Prompt", {0, 37, 38, 38, 101, 140}, 150, wide},
                          {"Prompt", {0, 5, 90, 90, 190}, 200, high},
                          {"Prompt", {0, 5, 90, 90, 190}, 200, super6}};
  for (const char *element : {"f32", "bf16"})
    for (const Experts &experts : all)
      if (experts.matrix.layout().mxfp4())
        cases.push_back(makeUntransposed(experts, element, true));
  for (const char *element : {"f32", "bf16"})
    for (const Experts &experts : sums)
      cases.push_back(makeUntransposed(experts, element, false));
}

// Tokens of an expert's that rows of warps share.
KernelCase deepExperts() {
  return make({"OneRow", {0, 0, 3, 4, 4}, 5, {"Int4Deep", 0, 96, 640, 4, 64}},
              "bf16");
}

std::vector<KernelCase> all() {
  std::vector<KernelCase> cases;
  const Shape few[] = {{"Int8One", 1, 64, 64, 8, 32},
                       {"Int8OneRagged", 1, 75, 104, 8, 64},
                       {"Int8FiveRows", 5, 300, 96, 8, 32},
                       {"Int4One", 1, 64, 64, 4, 32},
                       {"Int4OneRagged", 1, 75, 105, 4, 64},
                       {"Int4SixteenRows", 16, 280, 200, 4, 128},
                       {"Int4ThreeRows", 3, 33, 37, 4, 32}};
  const Shape many[] = {{"Int8Many", 45, 128, 128, 8, 32},
                        {"Int8ManyRagged", 37, 70, 105, 8, 64},
                        {"Int4Many", 64, 96, 256, 4, 64},
                        {"Int4ManyRagged", 29, 83, 77, 4, 32},
                        // Several chunks of the sum, the last one ragged.
                        {"Int4ManyDeep", 24, 52, 8229, 4, 128}};
  for (const char *element : {"f32", "bf16"}) {
    for (const Shape &shape : few)
      cases.push_back(make(shape, element, false, shape.rows > 1));
    for (const Shape &shape : many)
      cases.push_back(make(shape, element, false, shape.rows % 2));
  }
  // Packed rows, in several chunks of the sum; the last tile of rows ragged.
  const Shape packed[] = {{"Int8Packed", 101, 72, 1152, 8, 64},
                          {"Int4Packed", 200, 300, 1120, 4, 32},
                          {"Int4PackedZeros", 77, 48, 576, 4, 64, true},
                          // Several panels a block, which are widened beside
                          // products; the last rows are no whole tile.
                          {"Int8PackedPanels", 101, 256, 1152, 8, 64},
                          {"Int8PackedPanelsTile", 96, 128, 896, 8, 32},
                          {"Int4PackedPanels", 200, 256, 1120, 4, 32},
                          {"Int8PackedPanelsZeros", 77, 128, 576, 8, 64, true},
                          {"Int4PackedPanelsRows", 540, 96, 128, 4, 32}};
  for (const Shape &shape : packed)
    cases.push_back(make(shape, "bf16", false, shape.rows % 2));
  const Shape zeros[] = {{"Int8OneZeros", 1, 75, 104, 8, 64, true},
                         {"Int8FiveRowsZeros", 5, 300, 96, 8, 32, true},
                         {"Int4OneRaggedZeros", 1, 75, 105, 4, 64, true},
                         {"Int4SixteenRowsZeros", 16, 280, 200, 4, 128, true},
                         {"Int8ManyRaggedZeros", 37, 70, 105, 8, 64, true},
                         {"Int4ManyRaggedZeros", 29, 83, 77, 4, 32, true},
                         {"Int4ManyDeepZeros", 24, 52, 8229, 4, 128, true}};
  for (const char *element : {"f32", "bf16"})
    for (const Shape &shape : zeros)
      cases.push_back(make(shape, element, false, shape.rows % 2));
  cases.push_back(make(zeros[5], "bf16", true, false));
  const Shape floats[] = {
      {"Fp8One", 1, 64, 64, 8, 32, false, true},
      {"Fp8OneRagged", 1, 75, 105, 8, 128, false, true},
      {"Fp8FiveRows", 5, 300, 96, 8, 32, false, true},
      {"Fp8SixteenRows", 16, 280, 200, 8, 64, false, true},
      {"Fp8Many", 45, 128, 128, 8, 128, false, true},
      {"Fp8ManyRagged", 37, 70, 105, 8, 64, false, true},
      {"Fp8Packed", 101, 72, 1152, 8, 64, false, true},
      {"Fp8PackedPanels", 77, 192, 1152, 8, 64, false, true}};
  for (const char *element : {"f32", "bf16"})
    for (const Shape &shape : floats)
      cases.push_back(make(shape, element, false, shape.rows % 2));
  cases.push_back(make(floats[1], "f32", true, true));
  for (KernelCase &made : micropanelCases())
    cases.push_back(std::move(made));
  addRows(cases);
  addExperts(cases);
  addNormalFloats(cases);
  addMxfp4(cases);
  addSuperBlocks(cases);
  cases.push_back(make(few[4], "f32", true, true));
  cases.push_back(make(many[3], "bf16", true, false));
  return cases;
}

} // namespace

std::vector<KernelCase> micropanelCases() {
  std::vector<KernelCase> cases;
  // The last one has several chunks of the sum.
  const Shape micropanels[] = {{"MicropanelsOne", 1, 64, 64, 16, 32},
                               {"MicropanelsOneRagged", 1, 75, 105, 16, 32},
                               {"MicropanelsOneDeep", 1, 52, 2048, 16, 32},
                               {"MicropanelsFiveRows", 5, 300, 96, 16, 32},
                               {"MicropanelsSixteenRows", 16, 280, 200, 16, 32},
                               {"MicropanelsMany", 45, 128, 128, 16, 32},
                               {"MicropanelsManyRagged", 37, 70, 105, 16, 32},
                               {"MicropanelsManyRows", 300, 52, 64, 16, 32},
                               {"MicropanelsManyDeep", 290, 52, 5230, 16, 32},
                               {"MicropanelsPacked", 100, 300, 1120, 16, 32},
                               {"MicropanelsPackedRows", 600, 70, 640, 16, 32}};
  for (const Shape &shape : micropanels)
    cases.push_back(make(shape, "bf16", false, shape.rows % 2));
  cases.push_back(make(micropanels[1], "bf16", true, false));
  cases.push_back(make(micropanels[6], "bf16", true, true));
  const Shape small{"", 0, 48, 64, 16, 32}, odd{"", 0, 80, 105, 16, 32},
      deep{"", 0, 304, 1152, 16, 32};
  // Few rows each; many, which are packed or, where terms are no whole
  // registers, copied; one expert that has more than others, or all.
  const Experts experts[] = {{"One", {0, 0, 1, 1, 2}, 2, small},
                             {"Few", {0, 7, 7, 13, 16}, 17, odd},
                             {"Few", {0, 3, 43, 43, 60}, 64, deep},
                             {"None", {0, 0, 0, 0}, 70, small},
                             {"Two", {0, 3, 40}, 40, small},
                             {"Many", {0, 37, 38, 38, 101, 140}, 140, odd},
                             {"Many", {0, 0, 33, 180, 399}, 400, small},
                             {"Many", {0, 16, 33, 129, 250}, 252, deep},
                             {"All", {0, 0, 1200, 1200}, 1200, small}};
  for (const Experts &each : experts)
    cases.push_back(makeMicropanels(each));
  return cases;
}

const std::vector<KernelCase> &quantCases() {
  static const std::vector<KernelCase> cases = all();
  return cases;
}

std::vector<KernelCase> largeQuantCases() {
  const Shape shapes[] = {
      {"Int8OneOfModel", 1, 1024, 4096, 8, 32, true},
      {"Int4OneOfModel", 1, 4096, 4096, 4, 128},
      {"Int8EightOfModel", 8, 4096, 4096, 8, 32, true},
      {"Int4EightOfModel", 8, 4096, 4096, 4, 128, true},
      {"Int8ManyOfModel", 512, 4096, 4096, 8, 32, true},
      {"Int4ManyOfModel", 512, 4096, 4096, 4, 128, true},
      {"Fp8OneOfModel", 1, 4096, 4096, 8, 128, false, true},
      {"Fp8ManyOfModel", 512, 4096, 4096, 8, 32, false, true}};
  std::vector<KernelCase> cases;
  for (const Shape &shape : shapes)
    cases.push_back(make(shape, "bf16", false, true));
  return cases;
}

// Weights are multiplied as they are, however many rows there are; but for sums
// over the matrix's rows, where they are scaled and, in bf16, rounded before.
std::vector<KernelCase> gpuQuantCases() {
  std::vector<KernelCase> cases;
  // Enough tiles for the large one.
  cases.push_back(
      make({"Int4Large", 1280, 2048, 64, 4, 32, true}, "bf16", false, false));
  // Several chunks of the sum, which rows of warps share; the last one ragged.
  const Shape deep[] = {
      {"Int4OneDeepZeros", 1, 75, 1120, 4, 64, true},
      {"Int8ThreeRowsDeep", 3, 70, 2085, 8, 32},
      {"Int8SixteenRowsDeepZeros", 16, 280, 1152, 8, 128, true},
      {"Int4SixteenRowsDeep", 16, 40, 777, 4, 256},
      {"Fp8OneDeep", 1, 75, 1120, 8, 64, false, true},
      {"Fp8SixteenRowsDeep", 16, 280, 1152, 8, 128, false, true}};
  for (const Shape &shape : deep)
    cases.push_back(make(shape, "bf16", false, shape.rows > 3));
  cases.push_back(deepExperts());
  for (const KernelCase &one : quantCases())
    if (one.name.find("Micropanels") == std::string::npos &&
        one.name.find("Nf4") == std::string::npos &&
        one.name.find("Super") == std::string::npos &&
        one.name.find("Mxfp4") == std::string::npos &&
        one.name.find("Lookup") == std::string::npos)
      cases.push_back(one);
  // Heads that are parts of a group; few rows; terms that are no whole chunks.
  for (const Shape &shape : {Shape{"Int4Heads", 70, 48, 192, 4, 64},
                             Shape{"Int8FewHeads", 5, 112, 128, 8, 128, true},
                             Shape{"Int4Few", 9, 1040, 160, 4, 32, true}})
    cases.push_back(
        makeRowSums(shape, "bf16", shape.rows == 70, shape.rows != 9));
  for (KernelCase &one : cases)
    if (one.name.find("RowSums") == std::string::npos ||
        one.name.find("_f32") != std::string::npos)
      one.tolerance = 1e-5;
  return cases;
}

} // namespace tessera::testing
