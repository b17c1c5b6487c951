// What units further on have, given what two neighbors have: of removed layers,
// nothing else is kept.
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"

namespace tessera::folding {

/// The attribute `steps` units after that of `one`, if `two` has that of the
/// next: equal, or layers, integers, or numbers in names that increase
/// linearly, also in dictionaries. Null for anything else.
mlir::Attribute extrapolate(mlir::Attribute one, mlir::Attribute two,
                            int64_t steps);

/// The same for the names in a location; `two` for anything else.
mlir::Location extrapolate(mlir::Location one, mlir::Location two,
                           int64_t steps);

} // namespace tessera::folding
