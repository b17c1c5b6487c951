// Loads, stores, views, shared memory, and the barriers between them.
#include "compiler/target/cuda/KernelPrinter.h"

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

// An address along one dimension: "x + i * 256", its stride where it is not 1,
// its bound where there is one.
std::string KernelPrinter::access(const Memory &memory, ValueRange indices,
                                  int64_t along, Value bound) {
  std::string text = address(memory, indices);
  const Expression &stride = memory.strides[along];
  if (bound || !isNumber(stride, 1))
    text += ", " + stride.text;
  if (bound)
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
    return unsupported(op, "of a type that CUDA kernels do not hold");
  std::string name = fresh("kept");
  line(element + " *" + name + " = reinterpret_cast<" + element +
       " *>(sharedMemory() + " + llvm::Twine(shape.sharedBytes) + ");");
  int64_t bytes = type.getNumElements() *
                  ((type.getElementType().getIntOrFloatBitWidth() + 7) / 8);
  shape.sharedBytes += (bytes + 127) / 128 * 128;
  Memory memory{name, {"0"}, {}, op.getMemory()};
  int64_t stride = 1;
  for (int64_t size : llvm::reverse(type.getShape())) {
    memory.strides.insert(memory.strides.begin(), {std::to_string(stride)});
    stride *= size;
  }
  memories[op.getMemory()] = std::move(memory);
  return llvm::Error::success();
}

//===--- barriers ---------------------------------------------------------===//

// What one thread wrote another may read only after a barrier.
void KernelPrinter::synchronize(Value root, bool writes) {
  if (writes) {
    written.insert(root);
  } else if (written.contains(root)) {
    line("sync();");
    written.clear();
  }
}

// A loop that writes and reads one memory does so across its turns too.
void KernelPrinter::synchronizeLoop(scf::ForOp loop) {
  llvm::DenseSet<Value> reads, writes;
  auto rootOf = [&](Value memory) {
    while (auto view = memory.getDefiningOp<memref::ReinterpretCastOp>())
      memory = view.getSource();
    return memory;
  };
  loop.getBody()->walk([&](Operation *op) {
    if (auto load = dyn_cast<tile::LoadOp>(op))
      reads.insert(rootOf(load.getMemory()));
    else if (auto scalarLoad = dyn_cast<memref::LoadOp>(op))
      reads.insert(rootOf(scalarLoad.getMemRef()));
    else if (auto store = dyn_cast<tile::StoreOp>(op))
      writes.insert(rootOf(store.getMemory()));
    else if (auto scalarStore = dyn_cast<memref::StoreOp>(op))
      writes.insert(rootOf(scalarStore.getMemRef()));
  });
  if (llvm::any_of(writes, [&](Value root) { return reads.contains(root); })) {
    line("sync();");
    written.clear();
  }
}

//===--- tiles ------------------------------------------------------------===//

llvm::Error KernelPrinter::printLoad(tile::LoadOp op) {
  auto size = sizeOf(op.getType(), op);
  if (!size)
    return size.takeError();
  Memory &memory = memories[op.getMemory()];
  synchronize(memory.root, false);
  define(op.getResult(), memory.base + "Tile",
         "load<" + *size + ">(" +
             access(memory, op.getIndices(), op.getAlong()[0], op.getBound()) +
             ")");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printStore(tile::StoreOp op) {
  if (auto size = sizeOf(op.getValue().getType(), op); !size)
    return size.takeError();
  Memory &memory = memories[op.getMemory()];
  std::string value = tile(op.getValue());
  if (value.empty())
    return unsupported(op, "of a value without a CUDA form");
  line("store(" + value + ", " +
       access(memory, op.getIndices(), op.getAlong()[0], op.getBound()) + ");");
  synchronize(memory.root, true);
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printReduce(tile::ReduceOp op) {
  auto type = cast<VectorType>(op.getInput().getType());
  if (type.getRank() != 1)
    return unsupported(op, "of two dimensions has no CUDA form yet");
  std::string input = tile(op.getInput()),
              element = typeName(type.getElementType()).str();
  bool isFloat = isa<FloatType>(type.getElementType());
  std::string function, neutral;
  switch (op.getKind()) {
  case tile::ReduceKind::sum:
    function = "Add";
    break;
  case tile::ReduceKind::max:
    function = "Maximum";
    break;
  case tile::ReduceKind::min:
    function = "Minimum";
    break;
  }
  define(op.getResult(), isFloat ? "total" : "count",
         "reduce<" + function + ">(" + input + ")");
  return llvm::Error::success();
}

// A table of numbers, in the kernel's code.
llvm::Error KernelPrinter::printConstantTile(arith::ConstantOp op) {
  auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
  auto size = elements ? sizeOf(op.getType(), op) : std::string();
  if (!size)
    return size.takeError();
  std::string name = fresh("table"), numbers;
  Type element = elements.getElementType();
  for (Attribute value : elements.getValues<Attribute>())
    numbers += (numbers.empty() ? "" : ", ") + printNumber(value).text;
  line("static constexpr " + typeName(element) + " " + name + "[] = {" +
       numbers + "};");
  define(op.getResult(), "tile", "fromTable<" + *size + ">(" + name + ")");
  return llvm::Error::success();
}

} // namespace tessera::cuda
