// The number of a layer in the name of its state: "model.layers.17.mlp.up" has
// 17, and so has "transformer.h.17.ln_1.bias.exp_avg".
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include <optional>

namespace tessera::folding {

/// A name around its number. Points into the name.
struct LayerName {
  llvm::StringRef before, after;
  int64_t layer;

  /// Nothing where no part between dots is a number.
  static std::optional<LayerName> parse(llvm::StringRef name);
  /// Whether only the numbers differ.
  bool isLike(const LayerName &other) const {
    return before == other.before && after == other.after;
  }
  std::string withLayer(int64_t number) const;
};

/// The location with `distance` added to the layers that it names.
mlir::Location movedBy(mlir::Location location, int64_t distance);

} // namespace tessera::folding
