// Verifiers of the tile dialect. Debian's MLIR has assertions off, so invalid
// IR that passes is undefined behaviour later.
#include "dialects/tile/Interleave.h"
#include "dialects/tile/TileVerifyRoles.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace tessera::tile;

LogicalResult GemmAttr::verify(llvm::function_ref<InFlightDiagnostic()> error,
                               ArrayRef<int64_t> sizes, ArrayRef<int64_t> lhs,
                               ArrayRef<int64_t> rhs, ArrayRef<int64_t> result,
                               bool) {
  if (sizes.size() != 4 || lhs.size() != 5 || rhs.size() != 5 ||
      result.size() != 5)
    return error()
           << "a gemm must have four sizes and five numbers for each operand";
  return success();
}

LogicalResult
ContractionPlanAttr::verify(llvm::function_ref<InFlightDiagnostic()> error,
                            Engine, OperandSource, OperandSource, int64_t rows,
                            int64_t columns) {
  if (rows < 1 || columns < 1)
    return error() << "a tile has at least one row and one column";
  return success();
}

LogicalResult
AttentionPlanAttr::verify(llvm::function_ref<InFlightDiagnostic()> error,
                          Engine, int64_t queries, int64_t keys, int64_t split,
                          bool pingPong) {
  if (queries < 1 || keys < 1)
    return error() << "a tile has at least one query and one key";
  if (split < 0)
    return error() << "split must be a number of keys, or 0 for all, got "
                   << split;
  if (split > 0 && pingPong)
    return error() << "split and ping_pong belong to different kernels";
  return success();
}

LogicalResult
AttentionGradPlanAttr::verify(llvm::function_ref<InFlightDiagnostic()> error,
                              Engine, int64_t dkvQueries, int64_t dkvKeys,
                              int64_t dqQueries, int64_t dqKeys, bool) {
  if (std::min({dkvQueries, dkvKeys, dqQueries, dqKeys}) < 1)
    return error() << "a tile has at least one query and one key";
  return success();
}

// The attribute is only valid on a loop after a product; elsewhere it would be
// ignored.
static LogicalResult verifyInterleave(Operation *op) {
  if (!op->hasAttr(kInterleaveAttr))
    return success();
  if (!isa<scf::ForOp>(op))
    return op->emitOpError("only an scf.for may carry `")
           << kInterleaveAttr << "`";
  for (Operation *at = op->getPrevNode(); at; at = at->getPrevNode())
    if (isa<MmaStagedOp>(at))
      return success();
  return op->emitOpError("carries `")
         << kInterleaveAttr << "` but follows no tile.mma_staged of its block";
}

LogicalResult KernelOp::verify() {
  FunctionType type = getFunctionType();
  int64_t sizes = getDynamicSizes();
  if (type.getNumResults() != 0)
    return emitOpError("returns nothing, got ")
           << type.getNumResults() << " results";
  if (sizes < 0 || static_cast<int64_t>(type.getNumInputs()) < 1 + sizes)
    return emitOpError("needs a block number and ")
           << sizes << " sizes before its buffers";
  for (int64_t i = 0; i <= sizes; ++i)
    if (!type.getInput(i).isIndex())
      return emitOpError("argument ")
             << i << " must be an index, got " << type.getInput(i);
  if (std::optional<ArrayRef<int64_t>> warps = getWarps())
    if (warps->size() != 2 || (*warps)[0] < 1 || (*warps)[1] < 1 ||
        (*warps)[0] * (*warps)[1] > 32)
      return emitOpError("`warps` are rows and columns of at most 32 warps");
  ArrayRef<Type> buffers = type.getInputs().drop_front(1 + sizes);
  if (buffers.size() != getAccess().size())
    return emitOpError("has ") << buffers.size() << " buffers but "
                               << getAccess().size() << " access modes";
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    auto memref = dyn_cast<MemRefType>(buffer);
    if (!memref || memref.getMemorySpace() || !memref.getLayout().isIdentity())
      return emitOpError("buffer ")
             << i << " must be a dense memref in global memory, got " << buffer;
    if (!isa<AccessAttr>(getAccess()[i]))
      return emitOpError("access of buffer ")
             << i << " is not a #tile<access ...>";
  }
  WalkResult walk = getBody().walk([](Operation *op) {
    return failed(verifyInterleave(op)) ? WalkResult::interrupt()
                                        : WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

LogicalResult LaunchOp::verify() {
  int64_t n = getNumInstances();
  if (n < 1)
    return emitOpError("needs at least one instance in `blocks`");
  if (getInputs().size() % n || getOutputs().size() % n ||
      getSizes().size() % n)
    return emitOpError("operands, results and sizes must divide evenly among ")
           << n << " instances";
  for (int64_t blocks : getBlocks())
    if (blocks < 0)
      return emitOpError("block counts must not be negative, got ") << blocks;
  if (std::optional<ArrayRef<int64_t>> reuse = getReuse()) {
    int64_t inputs = getInputs().size() / n, outputs = getOutputs().size() / n;
    if (reuse->size() % 2)
      return emitOpError("`reuse` lists pairs (operand, result)");
    for (size_t i = 0; i < reuse->size(); i += 2)
      if ((*reuse)[i] < 0 || (*reuse)[i] >= inputs || (*reuse)[i + 1] < 0 ||
          (*reuse)[i + 1] >= outputs)
        return emitOpError("`reuse` pair ")
               << i / 2
               << " does not name an operand and a result of an instance";
  }
  return success();
}

// The buffers of an instance must have the kernel's element types and, where
// the kernel's shape is static, its number of elements.
LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel =
      symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return success(); // kernels of several targets live in nested modules
  SmallVector<Type> inputs, outputs;
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers())) {
    Access access = kernel.getBufferAccess(i);
    if (access != Access::write)
      inputs.push_back(buffer.getType());
    if (access != Access::read)
      outputs.push_back(buffer.getType());
  }
  auto check = [&](TypeRange given, ArrayRef<Type> wanted,
                   StringRef what) -> LogicalResult {
    if (given.size() != wanted.size() * getNumInstances())
      return emitOpError("kernel @")
             << getKernel() << " takes " << wanted.size() << " " << what
             << " an instance, got " << given.size() << " for "
             << getNumInstances();
    for (auto [i, type] : llvm::enumerate(given)) {
      auto tensor = cast<RankedTensorType>(type);
      auto memref = cast<MemRefType>(wanted[i % wanted.size()]);
      if (tensor.getElementType() != memref.getElementType() ||
          (memref.hasStaticShape() &&
           memref.getNumElements() != tensor.getNumElements()))
        return emitOpError(what)
               << " " << i << " is " << tensor << " but kernel @" << getKernel()
               << " expects " << memref;
    }
    return success();
  };
  if (failed(check(getInputs().getTypes(), inputs, "inputs")) ||
      failed(check(getOutputs().getTypes(), outputs, "outputs")))
    return failure();
  if (static_cast<int64_t>(getSizes().size()) !=
      static_cast<int64_t>(kernel.getDynamicSizes()) * getNumInstances())
    return emitOpError("kernel @")
           << getKernel() << " takes " << kernel.getDynamicSizes()
           << " sizes an instance";
  return success();
}

// Shared by tile.load and tile.store: one index for each dimension, `along`
// distinct and in range, element types equal, the box no larger than the
// memory.
static LogicalResult verifyBox(Operation *op, MemRefType memory, size_t indices,
                               ArrayRef<int64_t> along, ArrayRef<int64_t> box,
                               size_t bounds, bool mayRepeat = false) {
  if (bounds > box.size())
    return op->emitOpError("has ")
           << bounds << " bounds for " << box.size() << " tile dimensions";
  if (static_cast<int64_t>(indices) != memory.getRank())
    return op->emitOpError("needs ") << memory.getRank() << " indices for "
                                     << memory << ", got " << indices;
  if (along.size() != box.size())
    return op->emitOpError("`along` needs one memory dimension for each of ")
           << box.size() << " tile dimensions, got " << along.size();
  for (auto [i, dim] : llvm::enumerate(along)) {
    if (dim == -1 && mayRepeat)
      continue;
    if (dim < 0 || dim >= memory.getRank())
      return op->emitOpError("`along` names dimension ")
             << dim << " of " << memory;
    if (llvm::is_contained(along.drop_front(i + 1), dim))
      return op->emitOpError("`along` names dimension ") << dim << " twice";
    bool mayExceed = i + bounds >= along.size();
    if (!memory.isDynamicDim(dim) && box[i] > memory.getDimSize(dim) &&
        !mayExceed)
      return op->emitOpError("tile of ")
             << box[i] << " along dimension " << dim << " exceeds " << memory;
  }
  return success();
}

static LogicalResult verifyTransfer(Operation *op, MemRefType memory,
                                    VectorType tile, size_t indices,
                                    ArrayRef<int64_t> along, size_t bounds) {
  if (memory.getElementType() != tile.getElementType())
    return op->emitOpError("element types differ: ")
           << memory << " and " << tile;
  return verifyBox(op, memory, indices, along, tile.getShape(), bounds);
}

LogicalResult LoadOp::verify() {
  return verifyTransfer(*this, getMemory().getType(),
                        cast<VectorType>(getResult().getType()),
                        getIndices().size(), getAlong(), getBounds().size());
}

LogicalResult StoreOp::verify() {
  return verifyTransfer(*this, getMemory().getType(),
                        cast<VectorType>(getValue().getType()),
                        getIndices().size(), getAlong(), getBounds().size());
}

LogicalResult AllocOp::verify() {
  MemRefType memory = getMemory().getType();
  if (!memory.hasStaticShape() ||
      !isa_and_nonnull<SharedAttr>(memory.getMemorySpace()))
    return emitOpError("must allocate a static memref in #tile.shared, got ")
           << memory;
  if (!isa<KernelOp>((*this)->getParentOp()))
    return emitOpError("must be at the top level of a kernel");
  Layout layout = cast<SharedAttr>(memory.getMemorySpace()).getLayout();
  if (layout == Layout::swizzled &&
      (memory.getRank() < 2 || !memory.getElementType().isIntOrFloat() ||
       memory.getShape().back() * memory.getElementTypeBitWidth() % 256))
    return emitOpError("layout `swizzled` needs rows of whole 32 bytes, got ")
           << memory;
  if (layout == Layout::pairs &&
      (memory.getRank() < 2 || memory.getDimSize(memory.getRank() - 2) % 2))
    return emitOpError(
               "layout `pairs` needs an even next-to-last dimension, got ")
           << memory;
  return success();
}

LogicalResult CopyOp::verify() {
  MemRefType source = getSource().getType(), target = getTarget().getType();
  Type from = source.getElementType(), to = target.getElementType();
  bool extends = (isa<FloatType>(from) || from.isInteger(8)) &&
                 isa<FloatType>(to) &&
                 from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
  if (from != to && !extends)
    return emitOpError("element types differ: ") << source << " and " << target;
  size_t bounds = getBounds().size();
  if (bounds && bounds != getShape().size())
    return emitOpError("needs no bounds or one for each of ")
           << getShape().size() << " dimensions, got " << bounds;
  if ((source.getMemorySpace() && !extends) ||
      !isa_and_nonnull<SharedAttr>(target.getMemorySpace()))
    return emitOpError(
        "must copy from global to #tile.shared memory, or extend "
        "elements in #tile.shared memory");
  if (failed(verifyBox(*this, source, getSourceIndices().size(),
                       getSourceAlong(), getShape(), bounds,
                       /*mayRepeat=*/true)))
    return failure();
  return verifyBox(*this, target, getTargetIndices().size(), getTargetAlong(),
                   getShape(), 0);
}

LogicalResult WaitOp::verify() {
  if (static_cast<int64_t>(getPending()) < 0)
    return emitOpError("`pending` is not negative");
  return success();
}

// Checks of all products.
static LogicalResult verifyProduct(Operation *op, VectorType lhs,
                                   VectorType rhs, VectorType acc) {
  if (lhs.getRank() != 2 || rhs.getRank() != 2 || acc.getRank() != 2)
    return op->emitOpError("requires tiles of rank 2");
  if (lhs.getDimSize(1) != rhs.getDimSize(0) ||
      lhs.getDimSize(0) != acc.getDimSize(0) ||
      rhs.getDimSize(1) != acc.getDimSize(1))
    return op->emitOpError("tile shapes do not fit: ")
           << lhs << " × " << rhs << " into " << acc;
  if (lhs.getElementType() != rhs.getElementType())
    return op->emitOpError("operands must have one element type, got ")
           << lhs << " and " << rhs;
  if (lhs.getElementType().isInteger(32) && isa<MmaOp>(op))
    return acc.getElementType().isInteger(32)
               ? success()
               : op->emitOpError("words of bytes must accumulate in i32, got ")
                     << acc;
  bool isDouble = lhs.getElementType().isF64();
  if (!(isDouble ? acc.getElementType().isF64() : acc.getElementType().isF32()))
    return op->emitOpError("accumulates in ")
           << (isDouble ? "f64" : "f32") << ", got " << acc;
  return success();
}

LogicalResult MmaOp::verify() {
  if (getPairs() &&
      !cast<VectorType>(getLhs().getType()).getElementType().isInteger(32))
    return emitOpError("`pairs` are of words of bytes, got ")
           << getLhs().getType();
  return verifyProduct(*this, cast<VectorType>(getLhs().getType()),
                       cast<VectorType>(getRhs().getType()),
                       cast<VectorType>(getAccumulator().getType()));
}

LogicalResult MmaStagedOp::verify() {
  MemRefType lhs = getLhs().getType(), rhs = getRhs().getType(),
             sums = getSums().getType();
  for (auto [memory, indices] : {std::pair(lhs, getLhsIndices()),
                                 {rhs, getRhsIndices()},
                                 {sums, getSumIndices()}})
    if (memory.getRank() < 2 ||
        static_cast<int64_t>(indices.size()) != memory.getRank())
      return emitOpError("needs a matrix and an index for each dimension of ")
             << memory << ", got " << indices.size();
  if (!lhs.getElementType().isBF16() || !rhs.getElementType().isBF16() ||
      !sums.getElementType().isF32())
    return emitOpError("requires bf16 operands and f32 sums, got ")
           << lhs << " and " << rhs << " onto " << sums;
  auto isIn = [](MemRefType memory, Layout layout) {
    auto shared = dyn_cast_or_null<SharedAttr>(memory.getMemorySpace());
    return shared && shared.getLayout() == layout;
  };
  if (!isIn(rhs, Layout::pairs) || !isIn(sums, Layout::rows) ||
      isIn(lhs, Layout::pairs))
    return emitOpError(
               "expects rhs in layout `pairs`, sums in `rows` and lhs in "
               "rows, got ")
           << lhs << ", " << rhs << " and " << sums;
  ArrayRef<int64_t> shape = getShape();
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 ||
      (shape[1] > 16 && shape[1] != 32))
    return emitOpError("`shape` must be rows and 1 to 16 or 32 columns");
  if (shape[0] > 32 && (shape[0] % 32 || shape[1] != 32 || getFar()))
    return emitOpError(
        "of more than 32 rows requires a multiple of 32 rows, 32 "
        "columns, and no `far`");
  return success();
}

LogicalResult MmaAsyncOp::verify() {
  if (getResult().getType() != getAccumulator().getType())
    return emitOpError("must have the accumulator's type, got ")
           << getResult().getType();
  if (failed(verifyProduct(*this, cast<VectorType>(getLhs().getType()),
                           cast<VectorType>(getRhs().getType()),
                           cast<VectorType>(getAccumulator().getType()))))
    return failure();
  return verifyRole(*this, /*isConsumer=*/true);
}

LogicalResult ReduceOp::verify() {
  auto input = cast<VectorType>(getInput().getType()),
       result = cast<VectorType>(getResult().getType());
  int64_t dim = getDim();
  if (dim < 0 || dim >= input.getRank())
    return emitOpError("has no dimension ") << dim << " in " << input;
  SmallVector<int64_t> shape(input.getShape());
  shape.erase(shape.begin() + dim);
  if (result.getShape() != ArrayRef<int64_t>(shape) ||
      result.getElementType() != input.getElementType())
    return emitOpError("reduces ")
           << input << " along " << dim << " but has result " << result;
  return success();
}

LogicalResult BroadcastOp::verify() {
  auto result = cast<VectorType>(getResult().getType());
  auto input = dyn_cast<VectorType>(getInput().getType());
  Type element = input ? input.getElementType() : getInput().getType();
  ArrayRef<int64_t> shape = input ? input.getShape() : ArrayRef<int64_t>();
  if (element != result.getElementType())
    return emitOpError("element types differ: ")
           << element << " and " << result;
  if (getDims().size() != shape.size())
    return emitOpError("`dims` needs one entry for each of ")
           << shape.size() << " input dimensions";
  int64_t last = -1;
  for (auto [size, dim] : llvm::zip(shape, getDims())) {
    if (dim <= last || dim >= result.getRank() ||
        result.getDimSize(dim) != size)
      return emitOpError("`dims` must increase and match sizes in ") << result;
    last = dim;
  }
  return success();
}

LogicalResult IotaOp::verify() {
  auto type = cast<VectorType>(getResult().getType());
  if (static_cast<int64_t>(getDim()) < 0 ||
      static_cast<int64_t>(getDim()) >= type.getRank())
    return emitOpError("has no dimension ") << getDim() << " in " << type;
  return success();
}

LogicalResult SliceOp::verify() {
  auto input = cast<VectorType>(getInput().getType()),
       result = cast<VectorType>(getResult().getType());
  if (input.getRank() != 2 || result.getRank() != 2 ||
      input.getDimSize(0) % result.getDimSize(0) ||
      input.getDimSize(1) % result.getDimSize(1) ||
      input.getElementType() != result.getElementType())
    return emitOpError("cuts ")
           << input << " into tiles of one shape, got " << result;
  return success();
}

LogicalResult TransposeOp::verify() {
  auto input = cast<VectorType>(getInput().getType()),
       result = cast<VectorType>(getResult().getType());
  if (input.getRank() != 2 || result.getRank() != 2 ||
      input.getDimSize(0) != result.getDimSize(1) ||
      input.getDimSize(1) != result.getDimSize(0) ||
      input.getElementType() != result.getElementType())
    return emitOpError("swaps the dimensions of ")
           << input << ", got " << result;
  return success();
}
