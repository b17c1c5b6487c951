// How a parameter says in which layout its checkpoint stores it.
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "runtime/support/QuantizedLayout.h"

#include <optional>

namespace tessera::graph {

/// On a parameter, until quantize-weights: {bits, group}, and super_blocks, or
/// floats of mxfp4, where it is so.
inline constexpr llvm::StringLiteral kStoredAttr = "graph.stored";

mlir::DictionaryAttr writeStored(mlir::MLIRContext *context,
                                 const QuantizedLayout &layout);
/// Without rows and columns; nothing: not such an attribute.
std::optional<QuantizedLayout> readStored(mlir::Attribute attribute);

} // namespace tessera::graph
