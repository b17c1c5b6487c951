// Weights as integers or e4m3 with scales: graph.dequantize; and rows of a
// cache: graph.quantize_rows, graph.dequantize_rows.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "runtime/support/QuantizedLayout.h"

#define GET_OP_CLASSES
#include "dialects/graph/GraphQuantOps.h.inc"

namespace tessera::graph {

/// On a parameter that holds values or scales, or bf16 in micropanels, a
/// QuantizedOrigin: {source, part = "values" or "scales", bits, group, shape =
/// [rows, columns] or, of a stack, [matrices, rows, columns], zeros, floats,
/// super_blocks and transposed where it is so}. No @init gives such a
/// parameter.
inline constexpr llvm::StringLiteral kQuantizedAttr = "graph.quantized";

/// Of which tensor of a checkpoint a parameter is a part.
struct QuantizedOrigin {
  std::string source;
  bool isScales = false; ///< otherwise the values
  QuantizedLayout layout;
  bool transposed = false; ///< the checkpoint has [columns, rows]
  /// Matrices of a stack, whose rows follow each other in the layout; 0: it is
  /// one matrix, and none.
  int64_t stack = 0;

  mlir::DictionaryAttr write(mlir::MLIRContext *context) const;
  static std::optional<QuantizedOrigin> read(mlir::Attribute attribute);
};

/// The types of the values and of the scales.
mlir::RankedTensorType quantizedValuesType(mlir::MLIRContext *context,
                                           const QuantizedLayout &layout);
mlir::RankedTensorType quantizedScalesType(mlir::MLIRContext *context,
                                           const QuantizedLayout &layout);

/// One element: q of (n, k), from the word that holds it. Not of super-blocks
/// (runtime/support/SuperBlocks.h).
double quantizedAt(const QuantizedLayout &layout, uint32_t word, int64_t k);

} // namespace tessera::graph
