// Loads, stores, views, shared memory and barriers.
#include "compiler/target/cuda/KernelPrinter.h"
#include "dialects/tile/KernelBlocks.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tessera::cuda {

//===--- addresses --------------------------------------------------------===//

static bool isNumber(const Expression &expression, int64_t number) {
  return expression.text == std::to_string(number);
}

std::string KernelPrinter::address(const Memory &memory, ValueRange indices) {
  std::string text = memory.base;
  if (!isNumber(memory.offset, 0))
    text += " + " + within(memory.offset, Expression::product);
  for (auto [index, stride] : llvm::zip_equal(indices, memory.strides)) {
    Expression i = scalar(index);
    if (isNumber(i, 0) || isNumber(stride, 0))
      continue;
    text +=
        " + " + (isNumber(stride, 1) ? within(i, Expression::product)
                                     : within(i, Expression::product) + " * " +
                                           within(stride, Expression::atom));
  }
  return text;
}

// An address and the layout of a tile there: "x + i * 256", its strides unless
// one of them is 1, its bounds if it has any.
std::string KernelPrinter::access(const Memory &memory, ValueRange indices,
                                  ArrayRef<int64_t> along, ValueRange bounds) {
  std::string text = address(memory, indices);
  bool isPlain = along.size() == 1 && isNumber(memory.strides[along[0]], 1);
  if (!bounds.empty() || !isPlain)
    for (int64_t dim : along)
      text += ", " + (dim < 0 ? "0" : memory.strides[dim].text);
  if (bounds.size() == 1 && along.size() == 2) // of the columns only
    text += ", kWhole";
  for (Value bound : bounds)
    text += ", " + scalar(bound).text;
  return text;
}

llvm::Error KernelPrinter::printView(memref::ReinterpretCastOp op) {
  auto numberOr = [&](OpFoldResult value) -> Expression {
    if (std::optional<int64_t> number = getConstantIntValue(value))
      return {std::to_string(*number)};
    return scalar(cast<Value>(value));
  };
  Memory from = memories[op.getSource()];
  Memory view{from.base, numberOr(op.getMixedOffsets()[0]), {}, from.root};
  for (OpFoldResult stride : op.getMixedStrides())
    view.strides.push_back(numberOr(stride));
  memories[op.getResult()] = std::move(view);
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printAlloc(tile::AllocOp op) {
  auto type = cast<MemRefType>(op.getType());
  llvm::StringRef element = typeName(type.getElementType());
  if (element.empty())
    return unsupported(op, "of a type that CUDA kernels do not support");
  bool swizzled = cast<tile::SharedAttr>(type.getMemorySpace()).getLayout() ==
                  tile::Layout::swizzled;
  if (swizzled && type.getRank() != 3)
    return unsupported(op,
                       "of swizzled memory must be [stages, rows, columns]");
  std::string name = fresh(swizzled ? "staged" : "kept");
  if (swizzled) // eight rows of 128 bytes, after which swizzles repeat
    shape.sharedBytes = llvm::alignTo(shape.sharedBytes, 1024);
  if (swizzled)
    line("const SharedTiles<" + element + ", " +
         llvm::Twine(type.getDimSize(0)) + ", " +
         llvm::Twine(type.getDimSize(1)) + ", " +
         llvm::Twine(type.getDimSize(2)) + "> " + name + "{sharedMemory() + " +
         llvm::Twine(shape.sharedBytes) + "};");
  else
    line(element + " *" + name + " = reinterpret_cast<" + element +
         " *>(sharedMemory() + " + llvm::Twine(shape.sharedBytes) + ");");
  int64_t bytes = type.getNumElements() *
                  ((type.getElementType().getIntOrFloatBitWidth() + 7) / 8);
  shape.sharedBytes = llvm::alignTo(shape.sharedBytes + bytes, 128);
  Memory memory{name, {"0"}, {}, op.getMemory(), swizzled};
  int64_t stride = 1;
  for (int64_t size : llvm::reverse(type.getShape())) {
    memory.strides.insert(memory.strides.begin(), {std::to_string(stride)});
    stride *= size;
  }
  memories[op.getMemory()] = std::move(memory);
  return llvm::Error::success();
}

//===--- barriers ---------------------------------------------------------===//

llvm::Error KernelPrinter::printSynchronization(Operation *op) {
  if (isa<tile::CommitOp>(op)) {
    line("commitCopies();");
    return llvm::Error::success();
  }
  if (auto wait = dyn_cast<tile::WaitOp>(op)) {
    line("waitCopies<" + llvm::Twine(wait.getPending()) + ">();");
    if (hasWarpgroups) // wgmma reads through another proxy than copies write
      line("fenceAsync();");
  }
  line(barrier);
  return llvm::Error::success();
}

//===--- single elements --------------------------------------------------===//

llvm::Error KernelPrinter::printElementLoad(memref::LoadOp op) {
  Memory &memory = memories[op.getMemRef()];
  define(op.getResult(), "value",
         "read(" + address(memory, op.getIndices()) + ")");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printElementStore(memref::StoreOp op) {
  Memory &memory = memories[op.getMemRef()];
  line("write(" + scalar(op.getValue()).text + ", " +
       address(memory, op.getIndices()) + ");");
  return llvm::Error::success();
}

//===--- tiles ------------------------------------------------------------===//

// Elements of a tile that a thread accesses at once; 1 if they are not
// contiguous.
static int64_t contiguousElements(tile::KernelOp kernel, VectorType type,
                                  int64_t threads) {
  if (kernel.getWarps()) // pairs of Fragments (Fragments.cuh)
    return type.getRank() == 2 ? 2 : 1;
  if (type.getRank() != 1)
    return 1;
  // As Micropanel (Micropanel.cuh) divides it.
  int64_t size = type.getDimSize(0), each = llvm::divideCeil(size, threads);
  for (int64_t together : {4, 2})
    if (each % together == 0 && size % together == 0)
      return together;
  return 1;
}

// Whether a whole tile has contiguous rows, and each begins at a multiple of
// what a thread accesses at once; requires aligned buffers of launches then.
template <typename Op>
bool KernelPrinter::isProvenAligned(Op op, VectorType type) {
  const Memory &memory = memories[op.getMemory()];
  ArrayRef<int64_t> along = op.getAlong();
  if (along.empty() || !op.getBounds().empty() ||
      llvm::any_of(along, [](int64_t dim) { return dim < 0; }) ||
      !isNumber(memory.strides[along.back()], 1))
    return false;
  MemRefType from = op.getMemory().getType();
  int64_t bytes = llvm::divideCeil(from.getElementTypeBitWidth(), 8),
          together = contiguousElements(kernel, type, shape.threads);
  auto [strides, offset] = getStridesAndOffset(from);
  if ((kernel.getWarps() && together == 1) ||
      together * bytes > tile::kAlignedBytes ||
      alignmentOf(from, op.getIndices()) % together ||
      llvm::any_of(along.drop_back(), [&](int64_t dim) {
        return ShapedType::isDynamic(strides[dim]) || strides[dim] % together;
      }))
    return false;
  auto buffer = dyn_cast<BlockArgument>(memory.root);
  if (!buffer) // shared memory, which the kernel divides at multiples of 128
    return true;
  if (!kernel.getArgAttr(buffer.getArgNumber(), tile::kAlignedAttr))
    return false;
  alignBuffer(buffer);
  return true;
}

// The memory of a tile whose rows are proven to be aligned: its first element,
// and the stride of its rows if it has two dimensions.
template <typename Op> std::string KernelPrinter::alignedAccess(Op op) {
  const Memory &memory = memories[op.getMemory()];
  std::string text = address(memory, op.getIndices());
  for (int64_t dim : op.getAlong().drop_back())
    text += ", " + memory.strides[dim].text;
  return text;
}

llvm::Error KernelPrinter::printLoad(tile::LoadOp op) {
  if (llvm::Error error = checkLayout(op.getType(), op))
    return error;
  Memory &memory = memories[op.getMemory()];
  if (memory.swizzled)
    return bindOperand(op) ? llvm::Error::success()
                           : unsupported(op, "of swizzled memory must be one "
                                             "whole stage, for a product");
  std::string layout = layoutOf(op.getResult());
  define(
      op.getResult(), memory.base + "Tile",
      isProvenAligned(op, op.getType())
          ? "loadAligned<" + layout + ">(" + alignedAccess(op) + ")"
          : "load<" + layout + ">(" +
                access(memory, op.getIndices(), op.getAlong(), op.getBounds()) +
                ")");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printStore(tile::StoreOp op) {
  if (llvm::Error error = checkLayout(op.getValue().getType(), op))
    return error;
  Memory &memory = memories[op.getMemory()];
  if (memory.swizzled)
    return unsupported(op, "to swizzled memory has no CUDA form");
  std::string value = tile(op.getValue());
  if (value.empty())
    return unsupported(op, "of a value without a CUDA form");
  if (isProvenAligned(op, cast<VectorType>(op.getValue().getType())))
    line("storeAligned(" + value + ", " + alignedAccess(op) + ");");
  else
    line("store(" + value + ", " +
         access(memory, op.getIndices(), op.getAlong(), op.getBounds()) + ");");
  return llvm::Error::success();
}

// A table of numbers, in the kernel's code.
llvm::Error KernelPrinter::printConstantTile(arith::ConstantOp op) {
  auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
  if (llvm::Error error = checkLayout(op.getType(), op))
    return error;
  std::string name = fresh("table"), numbers;
  Type element = elements.getElementType();
  for (Attribute value : elements.getValues<Attribute>())
    numbers += (numbers.empty() ? "" : ", ") + printNumber(value).text;
  line("static constexpr " + typeName(element) + " " + name + "[] = {" +
       numbers + "};");
  define(op.getResult(), "tile",
         "fromTable<" + layoutOf(op.getResult()) + ">(" + name + ")");
  return llvm::Error::success();
}

} // namespace tessera::cuda
