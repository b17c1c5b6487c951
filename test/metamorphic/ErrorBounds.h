// How far a computation in given arithmetic may be from the exact one: a
// running error analysis (Higham, Accuracy and Stability of Numerical
// Algorithms, chapters 2 to 4) beside the reference interpreter.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

namespace tessera::metamorphic {

/// What is known of a tensor: another way to compute it gives numbers within
/// `radius` of `value`. Both have the tensor's shape; a radius is infinite
/// where nothing can be said (a comparison of equals that picks between two
/// values).
struct Bounded {
  interpreter::Tensor value, radius;
};

struct Arithmetic {
  double unit;        ///< half of a unit in the last place: 2^-24 for f32
  bool narrow = true; ///< whether bf16 and f16 round; f64 rounds by 2^-53
};

/// Kernels: f32 arithmetic, storage in the tensor's own type.
inline constexpr Arithmetic kKernelArithmetic{0x1p-24, true};
/// The interpreter, where a pass may have changed the order of sums.
inline constexpr Arithmetic kDoubleArithmetic{0x1p-53, false};

/// Interprets @f of `module`, in which composites are taken apart first (by
/// their definition), and bounds every result.
llvm::Expected<std::vector<Bounded>>
boundErrors(mlir::ModuleOp module, llvm::ArrayRef<interpreter::Tensor> inputs,
            const Arithmetic &arithmetic);

// The rules for elementwise ops (ElementwiseBounds.cpp).
Bounded boundElementwise(mlir::Operation *op,
                         llvm::ArrayRef<const Bounded *> operands,
                         const Arithmetic &arithmetic);

/// The rounding of a result of this type: what storing `value` may change.
double storageError(mlir::Type element, double value,
                    const Arithmetic &arithmetic);

} // namespace tessera::metamorphic
