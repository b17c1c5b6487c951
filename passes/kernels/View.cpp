// Strided views of cluster arguments as memrefs.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/Tiling.h"

using namespace mlir;
using namespace tessera;

Value tessera::emitView(OpBuilder &builder, Location loc, Value buffer,
                        const View &view) {
  auto dense = cast<MemRefType>(buffer.getType());
  // A memref has no stride of 0; that of a dimension of size 1 is free.
  SmallVector<int64_t> strides(view.strides);
  for (auto [stride, size] : llvm::zip_equal(strides, view.shape))
    if (size == 1)
      stride = 1;
  auto layout =
      StridedLayoutAttr::get(builder.getContext(), view.offset, strides);
  auto type = MemRefType::get(view.shape, dense.getElementType(), layout);
  return builder.create<memref::ReinterpretCastOp>(
      loc, type, buffer, view.offset, view.shape, strides);
}
