// Programs with quantized weights, as cases of kernels.
#pragma once
#include "runtime/support/QuantizedLayout.h"
#include "test/passes/kernels/KernelCases.h"
#include <fmt/format.h>

namespace tessera::testing::quant {

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

/// Rows of experts, by where each one's begin; those after the last are of
/// none, and no numbers.
struct Experts {
  const char *name;
  std::vector<double> offsets;
  int64_t rows;
  Shape matrix; ///< of each; its rows are not meant
};

KernelCase make(const Shape &shape, const char *element, bool transposed,
                bool epilogue);
/// The gradient of a linear layer's input, dY W: sums over the matrix's rows,
/// with columns as heads of 32 if `heads`.
KernelCase makeRowSums(const Shape &shape, const char *element, bool transposed,
                       bool heads);
/// Rows of the matrix, the first and the last among them, as bits of its
/// dequantized form.
KernelCase makeRows(const Shape &shape, const char *element);

/// Both products of a gated layer: the same rows, and the gate on the
/// accumulators of the second.
KernelCase make(const Experts &experts, const char *element);
/// Products with a stack [matrices, in, out], or, the gradient of the rows,
/// sums over the rows of each expert's matrix.
KernelCase makeUntransposed(const Experts &experts, const char *element,
                            bool sumsColumns);
/// Of a gated layer, with weights of bf16 in micropanels.
KernelCase makeMicropanels(const Experts &experts);

} // namespace tessera::testing::quant
