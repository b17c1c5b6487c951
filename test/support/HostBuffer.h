// One tensor in memory as kernels see it, with guards on both sides.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/BuiltinTypes.h"
#include <memory>
#include <vector>

namespace tessera::testing {

/// Elements in their stored form: bf16 and f16 as 16 bits, booleans as bytes.
class HostBuffer {
public:
  /// Full of 0xff bytes, NaN in every float type.
  explicit HostBuffer(mlir::RankedTensorType type);
  HostBuffer(mlir::RankedTensorType type, const interpreter::Tensor &values);
  HostBuffer(const HostBuffer &other);

  interpreter::Tensor values(llvm::ArrayRef<int64_t> shape) const;
  /// 64-byte aligned.
  std::byte *data() const { return start; }
  int64_t bytes() const { return size; }
  mlir::Type element() const { return elementType; }
  /// Whether the bytes around the tensor are still what they were.
  bool isIntact() const;

private:
  void allocate();
  double get(int64_t i) const;
  void set(int64_t i, double value);

  mlir::Type elementType;
  int64_t count, size;
  std::vector<std::byte> memory;
  std::byte *start;
};

/// Bytes of one stored element.
int64_t storedBytes(mlir::Type element);

} // namespace tessera::testing
