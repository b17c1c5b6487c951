#include "compiler/interpreter/Tensor.h"

using namespace tessera::interpreter;

Tensor::Tensor(llvm::ArrayRef<int64_t> shape, double value) : shape(shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  data.assign(count, value);
}

int64_t Tensor::offset(llvm::ArrayRef<int64_t> index) const {
  int64_t offset = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    offset = offset * shape[dim] + index[dim];
  return offset;
}

llvm::SmallVector<int64_t>
tessera::interpreter::stridesOf(llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;)
    strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

void tessera::interpreter::forEachIndex(
    llvm::ArrayRef<int64_t> shape,
    llvm::function_ref<void(llvm::ArrayRef<int64_t>)> visit) {
  for (int64_t size : shape)
    if (size == 0)
      return;
  llvm::SmallVector<int64_t> index(shape.size(), 0);
  while (true) {
    visit(index);
    size_t dim = shape.size();
    while (dim > 0 && ++index[dim - 1] == shape[dim - 1])
      index[--dim] = 0;
    if (dim == 0)
      return;
  }
}
