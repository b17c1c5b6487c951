// Searches for a key in the weights of long rows, a digit at a time.
#pragma once
#include "passes/kernels/gpu/GpuSample.h"

namespace tessera::gpu {

/// One digit of a key: the sums of what is from each of some keys on, of counts
/// (i32) or of weights (i64).
class SampleWalk {
public:
  SampleWalk(const SamplePart &p, bool byWeight)
      : p(p), e(p.e), byWeight(byWeight),
        type(byWeight ? mlir::Type(e.b.getI64Type())
                      : mlir::Type(e.b.getI32Type())) {
    // An odd stride: threads that read a column each meet other banks.
    perThread = p.allocate({kKeys, kThreadsOfPart + 1}, type);
    perPart = p.allocate({kThreadsOfPart}, type);
  }
  mlir::Value zero() const { return byWeight ? e.i64(0) : e.i32(0); }
  /// Sums of no tokens, one for each key after the first, `found` itself.
  SampleOps::Values begin() const {
    return SampleOps::Values(kKeys - 1, e.tileOf(zero()));
  }
  void add(SampleOps::Values &sums, mlir::Value bits, mlir::Value found,
           mlir::Value shift) const;
  void write(mlir::ValueRange sums, mlir::Value memory) const;
  mlir::Value total(mlir::Value memory) const;
  mlir::Value next(mlir::Value total, mlir::Value found, mlir::Value shift,
                   mlir::Value need) const;

private:
  const SamplePart &p;
  const SampleOps &e;
  bool byWeight;
  mlir::Type type;
  mlir::Value perThread, perPart;
};

} // namespace tessera::gpu
