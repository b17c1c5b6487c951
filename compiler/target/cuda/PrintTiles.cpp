// Layouts of tiles, products and their operands.
//
// In a kernel of warps, tiles of two dimensions are fragments, and those of one
// are slices: one value for each row or for each column. Which of the two
// follows from the reductions that make slices and the broadcasts that use
// them.
#include "compiler/target/cuda/KernelPrinter.h"
#include "dialects/tile/TileQuantOps.h"
#include "runtime/support/QuantizedLayout.h"
#include "llvm/Support/FormatVariadic.h"
#include <numeric>

using namespace mlir;

namespace tessera::cuda {

//===--- layouts ----------------------------------------------------------===//

static bool isSlice(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type && type.getRank() == 1;
}

// If one of the values is known to be a slice of rows or columns, all are.
// Constants are printed where they are used and may serve both.
bool KernelPrinter::unify(ArrayRef<Value> values) {
  std::optional<Slice> known;
  for (Value value : values)
    if (auto it = slices.find(value); it != slices.end())
      known = it->second;
  bool changed = false;
  if (known)
    for (Value value : values)
      if (isSlice(value) && !value.getDefiningOp<arith::ConstantOp>())
        changed |= slices.try_emplace(value, *known).second;
  return changed;
}

void KernelPrinter::findSlices() {
  if (!kernel.getWarps())
    return;
  auto visit = [&](Operation *op) -> bool {
    if (auto spread = dyn_cast<tile::BroadcastOp>(op)) {
      if (isSlice(spread.getInput()) && !isSlice(spread.getResult()))
        return slices
            .try_emplace(spread.getInput(), spread.getDims()[0] == 0
                                                ? Slice::rows
                                                : Slice::columns)
            .second;
      return false;
    }
    if (auto sum = dyn_cast<tile::ReduceOp>(op))
      return isSlice(sum.getResult()) &&
             slices
                 .try_emplace(sum.getResult(),
                              sum.getDim() == 1 ? Slice::rows : Slice::columns)
                 .second;
    bool changed = false;
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      for (auto [i, result] : llvm::enumerate(loop.getResults()))
        changed |= unify({loop.getInitArgs()[i], loop.getRegionIterArgs()[i],
                          loop.getYieldedValues()[i], result});
    } else if (isElementwise(op)) {
      SmallVector<Value> values(op->getOperands());
      llvm::append_range(values, op->getResults());
      changed = unify(values);
    }
    return changed;
  };
  for (bool changed = true; changed;) {
    changed = false;
    kernel.walk([&](Operation *op) { changed |= visit(op); });
  }
}

std::string KernelPrinter::layoutOf(Value value) {
  auto it = slices.find(value);
  return layoutOf(value.getType(),
                  it == slices.end() ? Slice::rows : it->second);
}

std::string KernelPrinter::layoutOf(Type type, Slice slice) {
  auto vector = cast<VectorType>(type);
  auto use = [&](const std::string &name, const std::string &definition) {
    layouts.insert({name, definition});
    return name;
  };
  std::string size = std::to_string(vector.getDimSize(0));
  std::optional<ArrayRef<int64_t>> warps = kernel.getWarps();
  if (!warps)
    return use("Micropanel" + size, "Micropanel<" + size + ", kThreads>");
  std::string arranged = ", " + std::to_string((*warps)[0]) + ", " +
                         std::to_string((*warps)[1]) + ">";
  if (vector.getRank() == 1) {
    std::string kind = slice == Slice::rows ? "Rows" : "Columns";
    return use(kind + size, kind + "<" + size + arranged);
  }
  std::string columns = std::to_string(vector.getDimSize(1));
  return use("Tile" + size + "x" + columns,
             "Fragments<" + size + ", " + columns + arranged);
}

llvm::Error KernelPrinter::checkLayout(Type type, Operation *op) {
  auto vector = cast<VectorType>(type);
  std::optional<ArrayRef<int64_t>> warps = kernel.getWarps();
  if (vector.getRank() > 2 || (vector.getRank() == 2 && !warps))
    return unsupported(op, "on tiles of this rank has no CUDA form "
                           "in a kernel without warps");
  return llvm::Error::success();
}

//===--- staged operands --------------------------------------------------===//

// The operand of a product: a stage of swizzled memory as stored, or
// transposed.
bool KernelPrinter::bindOperand(tile::LoadOp op) {
  auto memory = op.getMemory().getType();
  auto type = cast<VectorType>(op.getResult().getType());
  ArrayRef<int64_t> along = op.getAlong();
  if (type.getRank() != 2 || !op.getBounds().empty())
    return false;
  bool isTransposed = along[0] == 2;
  if (isTransposed ? along[1] != 1 : along[0] != 1 || along[1] != 2)
    return false;
  for (unsigned i : {0, 1})
    if (type.getDimSize(i) != memory.getDimSize(along[i]) ||
        getConstantIntValue(op.getIndices()[i + 1]) != 0)
      return false;
  for (Operation *user : op.getResult().getUsers())
    if (!isa<tile::MmaOp, tile::MmaAsyncOp, tile::MmaQuantizedOp>(user))
      return false;
  std::string stage = memories[op.getMemory()].base + "[" +
                      scalar(op.getIndices()[0]).text + "]";
  values[op.getResult()] = {isTransposed ? "transposed(" + stage + ")" : stage};
  return true;
}

// A number that divides the value, as far as its arithmetic shows.
static int64_t divisorOf(Value value) {
  if (std::optional<int64_t> number = getConstantIntValue(value))
    return *number;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (loop && argument == loop.getInductionVar())
      return std::gcd(divisorOf(loop.getLowerBound()),
                      divisorOf(loop.getStep()));
    return 1;
  }
  if (auto mul = value.getDefiningOp<arith::MulIOp>())
    return divisorOf(mul.getLhs()) * divisorOf(mul.getRhs());
  if (auto shift = value.getDefiningOp<arith::ShLIOp>())
    if (auto by = getConstantIntValue(shift.getRhs()))
      return divisorOf(shift.getLhs()) << *by;
  Operation *op = value.getDefiningOp();
  if (isa<arith::AddIOp, arith::SubIOp>(op))
    return std::gcd(divisorOf(op->getOperand(0)), divisorOf(op->getOperand(1)));
  return 1;
}

// A number of elements that the address of memory[indices] is a multiple of,
// where buffers begin at multiples of any such number.
int64_t KernelPrinter::alignmentOf(MemRefType type, ValueRange indices) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(getStridesAndOffset(type, strides, offset)) ||
      ShapedType::isDynamic(offset))
    return 1;
  int64_t alignment = offset;
  for (auto [index, stride] : llvm::zip_equal(indices, strides))
    alignment =
        std::gcd(alignment,
                 ShapedType::isDynamic(stride) ? 1 : stride * divisorOf(index));
  return alignment; // 0: the buffer's first element
}

// Copies elements of a dimension to a row of unswizzled shared memory.
llvm::Error KernelPrinter::printCopyOfRow(tile::CopyOp op) {
  MemRefType to = op.getTarget().getType();
  int64_t last = to.getRank() - 1;
  if (op.getShape().size() != 1 || op.getSource().getType().getMemorySpace() ||
      op.getTargetAlong()[0] != last || op.getSourceAlong()[0] < 0)
    return unsupported(op, "must fill swizzled memory, or part of a row");
  const Memory &source = memories[op.getSource()];
  std::string place = address(source, op.getSourceIndices()) + ", " +
                      source.strides[op.getSourceAlong()[0]].text;
  for (Value bound : op.getBounds())
    place += ", " + scalar(bound).text;
  line("stageRow<kThreads, " + llvm::Twine(op.getShape()[0]) + ">(" +
       address(memories[op.getTarget()], op.getTargetIndices()) + ", " + place +
       ");");
  return llvm::Error::success();
}

// Converts a stage of integers to floats in another one.
llvm::Error KernelPrinter::printUpcast(tile::CopyOp op) {
  MemRefType from = op.getSource().getType(), to = op.getTarget().getType();
  const Memory &source = memories[op.getSource()],
               &target = memories[op.getTarget()];
  auto isWhole = [&](OperandRange indices, ArrayRef<int64_t> along) {
    return along == ArrayRef<int64_t>{1, 2} &&
           getConstantIntValue(indices[1]) == 0 &&
           getConstantIntValue(indices[2]) == 0;
  };
  if (!source.swizzled || !target.swizzled || !op.getBounds().empty() ||
      op.getShape() != from.getShape().drop_front() ||
      op.getShape() != to.getShape().drop_front() ||
      !from.getElementType().isInteger(8) ||
      !isWhole(op.getSourceIndices(), op.getSourceAlong()) ||
      !isWhole(op.getTargetIndices(), op.getTargetAlong()))
    return unsupported(
        op, "within shared memory must extend a whole stage of int8");
  line("widen<kThreads>(" + target.base + "[" +
       scalar(op.getTargetIndices()[0]).text + "], " + source.base + "[" +
       scalar(op.getSourceIndices()[0]).text + "]);");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printCopy(tile::CopyOp op) {
  if (!memories[op.getTarget()].swizzled)
    return printCopyOfRow(op);
  if (op.getSource().getType().getMemorySpace())
    return printUpcast(op);
  auto from = op.getSource().getType(), to = op.getTarget().getType();
  Memory &source = memories[op.getSource()], &target = memories[op.getTarget()];
  ArrayRef<int64_t> along = op.getSourceAlong(), shape = op.getShape();
  std::optional<int64_t> row = getConstantIntValue(op.getTargetIndices()[1]);
  if (shape.size() != 2 || shape[1] != to.getDimSize(2) || !row ||
      op.getTargetAlong() != ArrayRef<int64_t>{1, 2} ||
      getConstantIntValue(op.getTargetIndices()[2]) != 0)
    return unsupported(op, "must fill whole rows of one stage of swizzled "
                           "memory, at a constant row");
  std::string stage =
      target.base + "[" + scalar(op.getTargetIndices()[0]).text + "]";
  if (shape[0] != to.getDimSize(1))
    stage = llvm::formatv("rowsOf<{0}>({1}, {2})", shape[0], stage, *row);
  std::string place =
      access(source, op.getSourceIndices(), along, op.getBounds());
  // By cp.async if every chunk of 16 bytes is contiguous and aligned.
  int64_t chunk = 128 / from.getElementTypeBitWidth();
  SmallVector<int64_t> strides;
  int64_t offset;
  bool packed = from.getElementType() == to.getElementType() &&
                succeeded(getStridesAndOffset(from, strides, offset)) &&
                along[1] >= 0 && strides[along[1]] == 1 &&
                (along[0] < 0 || strides[along[0]] % chunk == 0) &&
                alignmentOf(from, op.getSourceIndices()) % chunk == 0;
  if (packed) {
    if (auto buffer = dyn_cast<BlockArgument>(source.root))
      alignBuffer(buffer);
    place = address(source, op.getSourceIndices()) + ", " +
            (along[0] < 0 ? "0" : source.strides[along[0]].text);
    for (Value bound : op.getBounds())
      place += ", " + scalar(bound).text;
  }
  line(std::string(!packed                                ? "stage"
                   : hasFewRows && op.getBounds().empty() ? "stageWhole"
                                                          : "stagePacked") +
       "<kThreads>(" + stage + ", " + place + ");");
  return llvm::Error::success();
}

//===--- tiles ------------------------------------------------------------===//

// Whether wgmma computes this product: bf16, and every warpgroup has 64 whole
// rows.
bool KernelPrinter::isOfWarpgroups(tile::MmaOp op) {
  auto type = cast<VectorType>(op.getResult().getType());
  std::optional<ArrayRef<int64_t>> warps = kernel.getWarps();
  return target.warpgroups && warps && (*warps)[0] % 4 == 0 &&
         (*warps)[1] == 1 && type.getDimSize(0) == 16 * (*warps)[0] &&
         type.getDimSize(1) <= 256 &&
         cast<VectorType>(op.getLhs().getType()).getElementType().isBF16();
}

// Whether each warp has 16 × 16 sums of a matmul and streams long chunks of
// columns from memory: copies and fragments then bind, not products.
bool KernelPrinter::isOfFewRows(tile::MmaOp op) {
  constexpr int64_t kFragment = 16, kLeastTerms = 64;
  auto type = cast<VectorType>(op.getResult().getType()),
       lhs = cast<VectorType>(op.getLhs().getType());
  std::optional<ArrayRef<int64_t>> warps = kernel.getWarps();
  return (kernel.getSkeleton() == tile::Skeleton::contraction ||
          kernel.getSkeleton() == tile::Skeleton::grouped) &&
         warps && (*warps)[0] == 1 && type.getDimSize(0) == kFragment &&
         type.getDimSize(1) == kFragment * (*warps)[1] &&
         lhs.getElementType().isBF16() && lhs.getDimSize(1) >= kLeastTerms;
}

llvm::Error KernelPrinter::checkFragments(Operation *op) {
  auto type = cast<VectorType>(op->getResult(0).getType());
  std::optional<ArrayRef<int64_t>> warps = kernel.getWarps();
  if (!warps || type.getDimSize(0) % (16 * (*warps)[0]) ||
      type.getDimSize(1) % (16 * (*warps)[1]))
    return unsupported(op,
                       "requires whole fragments of 16 × 16 for every warp");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printMma(tile::MmaOp op) {
  if (llvm::Error error = checkFragments(op))
    return error;
  std::string layout = layoutOf(op.getResult());
  define(op.getResult(), "product",
         std::string(isOfWarpgroups(op) ? "multiplyWarpgroups("
                     : isOfFewRows(op)  ? "multiplyAhead("
                                        : "multiply(") +
             tile(op.getLhs()) + ", " + tile(op.getRhs()) + ", " +
             tile(op.getAccumulator(), layout) + ")");
  return llvm::Error::success();
}

// By mma.sync on all targets.
llvm::Error KernelPrinter::printMmaQuantized(tile::MmaQuantizedOp op) {
  if (llvm::Error error = checkFragments(op))
    return error;
  int64_t splits = op.getSplits();
  if (splits > 1 &&
      (splits != (*kernel.getWarps())[0] ||
       cast<VectorType>(op.getType()).getDimSize(0) != 16 * splits))
    return unsupported(op,
                       "requires 16 rows and a row of warps for each split");
  // Panels of 128 bytes are read two blocks at a time.
  auto rows = cast<VectorType>(op.getLhs().getType());
  constexpr int64_t kPair = 2 * kQuantBlock;
  if (rows.getElementType().isBF16() && rows.getDimSize(1) % kPair == 0 &&
      rows.getDimSize(1) / splits % kPair)
    return unsupported(
        op, "requires splits of a multiple of 64 terms if rows have as many");
  for (Value operand : {op.getLhs(), op.getWords(), op.getScales()})
    if (auto load = operand.getDefiningOp<tile::LoadOp>();
        !load || load.getAlong()[0] != 1)
      return unsupported(op, "requires stages of swizzled memory as operands");
  const char *number = op.getFloats()      ? "E4m3"
                       : op.getBits() == 4 ? "Int4"
                                           : "Int8";
  if (op.getRows()) {
    define(op.getResult(), "product",
           llvm::formatv("multiplyQuantizedRows<{0}, {1}, {2}>({3}, {4}, {5}, "
                         "{6})",
                         number, op.getGroup(),
                         op.getZeros() ? "true" : "false",
                         tile(op.getLhs(), ""), tile(op.getWords(), ""),
                         tile(op.getScales(), ""),
                         tile(op.getAccumulator(), layoutOf(op.getResult())))
               .str());
    return llvm::Error::success();
  }
  define(
      op.getResult(), "product",
      llvm::formatv("multiplyQuantized<{0}, {1}, {2}, {3}>({4}, {5}, {6}, {7})",
                    number, op.getGroup(), op.getZeros() ? "true" : "false",
                    splits, tile(op.getLhs(), ""), tile(op.getWords(), ""),
                    tile(op.getScales(), ""),
                    tile(op.getAccumulator(), layoutOf(op.getResult())))
          .str());
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printIota(tile::IotaOp op) {
  if (llvm::Error error = checkLayout(op.getType(), op))
    return error;
  std::string dim = cast<VectorType>(op.getType()).getRank() == 2
                        ? ", " + std::to_string(op.getDim())
                        : "";
  define(op.getResult(), "index",
         "iota<" + layoutOf(op.getResult()) + dim + ">(" +
             scalar(op.getStart()).text + ")");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printReduce(tile::ReduceOp op) {
  auto type = cast<VectorType>(op.getInput().getType());
  if (llvm::Error error = checkLayout(type, op))
    return error;
  std::string function;
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
  if (type.getRank() == 2)
    function += ", " + std::to_string(op.getDim());
  bool isFloat = isa<FloatType>(type.getElementType());
  define(op.getResult(), isFloat ? "total" : "count",
         "reduce<" + function + ">(" + tile(op.getInput()) + ")");
  return llvm::Error::success();
}

} // namespace tessera::cuda
