#include "test/passes/kernels/QuantPrograms.h"
#include "runtime/support/Floats.h"
#include <bit>
#include <cmath>
#include <random>

namespace tessera::testing::quant {
namespace {

int64_t middleOf(const QuantizedLayout &layout) {
  return layout.words() * (layout.hasScales() ? 1 : layout.perWord());
}

std::string shapes(const QuantizedLayout &layout, int64_t middle) {
  return fmt::format("{}x{}x{}", layout.micropanels(), middle, kMicropanel);
}

// e4m3 whose exponent and fraction are all ones is a NaN.
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

} // namespace

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

} // namespace tessera::testing::quant
