// Tensors of the reference interpreter: a shape and doubles.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <vector>

namespace tessera::interpreter {

/// Row-major elements. Integers are held as doubles too, which is exact up to
/// 2^53; booleans are 0 and 1.
struct Tensor {
  llvm::SmallVector<int64_t> shape;
  std::vector<double> data;

  Tensor() = default;
  explicit Tensor(llvm::ArrayRef<int64_t> shape, double value = 0.0);
  Tensor(llvm::ArrayRef<int64_t> shape, std::vector<double> data)
      : shape(shape), data(std::move(data)) {}

  int64_t size() const { return static_cast<int64_t>(data.size()); }
  double &at(llvm::ArrayRef<int64_t> index) { return data[offset(index)]; }
  double at(llvm::ArrayRef<int64_t> index) const { return data[offset(index)]; }

private:
  int64_t offset(llvm::ArrayRef<int64_t> index) const;
};

using Tensors = std::vector<Tensor>;

/// Elements from one index to the next along each dimension.
llvm::SmallVector<int64_t> stridesOf(llvm::ArrayRef<int64_t> shape);

/// Calls `visit` with each index of `shape`, the last dimension fastest.
void forEachIndex(llvm::ArrayRef<int64_t> shape,
                  llvm::function_ref<void(llvm::ArrayRef<int64_t>)> visit);

} // namespace tessera::interpreter
