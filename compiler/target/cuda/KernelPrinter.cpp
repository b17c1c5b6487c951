#include "compiler/target/cuda/KernelPrinter.h"
#include "dialects/tile/KernelBlocks.h"
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/Tiling.h"
#include "passes/kernels/gpu/SharedAccess.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace tessera::cuda {

// Bytes at the start of shared memory that the device library uses
// (kScratchBytes in Tile.cuh).
static constexpr int64_t kScratchBytes = 4096;

//===--- text -------------------------------------------------------------===//

std::string KernelPrinter::fresh(llvm::StringRef hint) {
  unsigned count = names[hint]++;
  return count ? (hint + llvm::Twine(count)).str() : hint.str();
}

void KernelPrinter::line(const llvm::Twine &code) {
  text += std::string(2 * depth, ' ') + code.str() + "\n";
}

void KernelPrinter::define(Value value, llvm::StringRef hint,
                           const llvm::Twine &expression) {
  std::string name = fresh(hint);
  line("const auto " + name + " = " + expression + ";");
  values[value] = {name};
}

llvm::Error KernelPrinter::unsupported(Operation *op, const llvm::Twine &why) {
  return llvm::createStringError("kernel @" + kernel.getSymName() + ": " +
                                 op->getName().getStringRef() + " " + why);
}

std::string KernelPrinter::typeOf(Value value) {
  std::string element = typeName(getElementTypeOrSelf(value.getType())).str();
  auto vector = dyn_cast<VectorType>(value.getType());
  if (!vector || vector.getRank() == 0)
    return element;
  return "Tile<" + element + ", " + layoutOf(value) + ">";
}

//===--- values -----------------------------------------------------------===//

bool KernelPrinter::isElementwise(Operation *op) const {
  return OpTrait::hasElementwiseMappableTraits(op) ||
         isa<arith::IndexCastOp, arith::IndexCastUIOp, tile::BroadcastOp>(op) ||
         (isa<arith::ConstantOp>(op) && op->getNumResults() == 1);
}

// Whether the op is printed within its user's expression: constants,
// broadcasts, and arithmetic of the same loop level with one use.
bool KernelPrinter::isInlined(Operation *op) const {
  if (!isElementwise(op) || op->getNumResults() != 1)
    return false;
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
    return !elements || elements.isSplat();
  }
  if (isa<tile::BroadcastOp>(op))
    return true;
  Value result = op->getResult(0);
  if (!result.hasOneUse())
    return false;
  Operation *user = *result.user_begin();
  if (user->getBlock() != op->getBlock())
    return false;
  return isElementwise(user) || result.getType().isIndex() ||
         isa<tile::StoreOp, memref::StoreOp>(user);
}

Expression KernelPrinter::scalar(Value value) {
  if (auto it = values.find(value); it != values.end())
    return it->second;
  Operation *op = value.getDefiningOp();
  SmallVector<Expression> operands;
  for (Value operand : op->getOperands())
    operands.push_back(scalar(operand));
  if (isa<tile::BroadcastOp>(op))
    return operands[0];
  std::optional<Expression> printed =
      printScalar(op, operands, cast<OpResult>(value).getResultNumber());
  return printed ? *printed : Expression{};
}

// An element of a tile's expression in terms of lambda parameters.
Expression KernelPrinter::element(Value value, Lambda &lambda, bool isRoot) {
  Operation *op = value.getDefiningOp();
  bool isLeaf = !isRoot && (values.contains(value) || !op || !isInlined(op));
  if (!isLeaf && isa<tile::BroadcastOp>(op)) // a scalar serves all elements
    value = op->getOperand(0), op = value.getDefiningOp(), isLeaf = true;
  if (isLeaf && op && isa<arith::ConstantOp>(op))
    isLeaf = false;
  if (isLeaf) {
    auto [it, isNew] = lambda.seen.try_emplace(value);
    if (isNew) {
      std::string name = "x" + std::to_string(lambda.parameters.size());
      it->second = name;
      lambda.parameters.push_back(
          (typeName(getElementTypeOrSelf(value.getType())) + " " + name).str());
      lambda.arguments.push_back(isTile(value.getType()) ? tile(value)
                                                         : scalar(value).text);
    }
    return {it->second};
  }
  SmallVector<Expression> operands;
  for (Value operand : op->getOperands())
    operands.push_back(element(operand, lambda, /*isRoot=*/false));
  std::optional<Expression> printed =
      printScalar(op, operands, cast<OpResult>(value).getResultNumber());
  return printed ? *printed : Expression{};
}

// The C++ of a tile: its name, or the map that computes it.
std::string KernelPrinter::tile(Value value, llvm::StringRef name) {
  if (auto it = values.find(value); it != values.end())
    return it->second.text;
  std::string layout = name.str();
  Operation *op = value.getDefiningOp();
  if (auto spread = dyn_cast<tile::BroadcastOp>(op);
      spread && isTile(spread.getInput().getType()))
    return "spread<" + layout + ">(" + tile(spread.getInput()) + ")";
  if (isa<arith::ConstantOp, tile::BroadcastOp>(op))
    return "splat<" + layout + ">(" + scalar(value).text + ")";
  Lambda lambda;
  Expression body = element(value, lambda, /*isRoot=*/true);
  if (body.text.empty())
    return "";
  if (lambda.arguments.empty()) // constants all through
    return "splat<" + layout + ">(" + body.text + ")";
  return "map<" + layout + ">([](" + llvm::join(lambda.parameters, ", ") +
         ") { return " + body.text + "; }, " +
         llvm::join(lambda.arguments, ", ") + ")";
}

// A tile that becomes a product's operand: bf16 pairs take half the registers.
static bool becomesPairs(Operation *op) {
  auto truncate = dyn_cast<arith::TruncFOp>(op);
  return truncate && isa<VectorType>(truncate.getType()) &&
         cast<VectorType>(truncate.getType()).getRank() == 2 &&
         getElementTypeOrSelf(truncate.getIn()).isF32() &&
         getElementTypeOrSelf(truncate.getType()).isBF16();
}

llvm::Error KernelPrinter::printTile(Operation *op) {
  for (Value result : op->getResults()) {
    if (result.use_empty())
      continue;
    bool isTiled = isTile(result.getType());
    if (isTiled)
      if (llvm::Error error = checkLayout(result.getType(), op))
        return error;
    std::string expression = becomesPairs(op)
                                 ? "toBf16(" + tile(op->getOperand(0)) + ")"
                             : isTiled ? tile(result)
                                       : scalar(result).text;
    if (expression.empty())
      return unsupported(op, "has no CUDA form");
    define(result,
           isTiled                      ? "tile"
           : result.getType().isIndex() ? "i"
                                        : "value",
           expression);
  }
  return llvm::Error::success();
}

//===--- kernel -----------------------------------------------------------===//

static std::string describe(MemRefType type) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (int64_t size : type.getShape())
    os << (text.empty() ? "" : " x ")
       << (ShapedType::isDynamic(size) ? "n" : std::to_string(size));
  os << ' ' << type.getElementType();
  return text;
}

unsigned KernelPrinter::alignBuffer(BlockArgument buffer) {
  unsigned number = buffer.getArgNumber() - 1 -
                    static_cast<unsigned>(kernel.getDynamicSizes());
  shape.aligned.insert(number);
  return number;
}

// The name of a buffer. Names come from models, and may be keywords of C++ or
// names of the device library; none of those ends with an underscore.
std::string KernelPrinter::nameBuffer(unsigned i) {
  auto given = kernel.getArgAttrOfType<StringAttr>(
      1 + kernel.getDynamicSizes() + i, kBufferNameAttr);
  return fresh(given ? given.getValue().str() + "_" : "b" + std::to_string(i));
}

std::string KernelPrinter::describeBuffer(unsigned i) {
  auto type = cast<MemRefType>(kernel.getBuffers()[i].getType());
  auto shaped = kernel.getArgAttrOfType<StringAttr>(
      1 + kernel.getDynamicSizes() + i, kBufferShapeAttr);
  return (shaped ? shaped.getValue().str() + " " +
                       typeName(type.getElementType()).str()
                 : describe(type)) +
         ", " + tile::stringifyAccess(kernel.getBufferAccess(i)).str();
}

llvm::Error KernelPrinter::printBuffer(unsigned i, const std::string &name) {
  Value buffer = kernel.getBuffers()[i];
  llvm::StringRef element =
      typeName(cast<MemRefType>(buffer.getType()).getElementType());
  if (element.empty())
    return unsupported(kernel, "has a buffer of a type that CUDA kernels do "
                               "not support");
  bool isRead = kernel.getBufferAccess(i) == tile::Access::read;
  std::string type = (isRead ? "const " + element : element).str();
  bool isUnwritten = kernel.getArgAttr(1 + kernel.getDynamicSizes() + i,
                                       tile::kUnwrittenAttr) != nullptr;
  line(type + (isUnwritten ? " *__restrict__ " : " *") + name +
       " = instance.buffer<" + type + ">(" + llvm::Twine(i) + ");");
  memories[buffer] = {name, {"0"}, {{"1"}}, buffer};
  return llvm::Error::success();
}

// These and kernels of few rows: their stages take much of the shared memory,
// so that few blocks fit on an SM, and registers need not be few for it.
static bool splitsTerms(tile::KernelOp kernel) {
  return kernel
      ->walk([](tile::MmaQuantizedOp op) {
        return op.getSplits() > 1 ? WalkResult::interrupt()
                                  : WalkResult::advance();
      })
      .wasInterrupted();
}

llvm::Error KernelPrinter::printHeader() {
  size_t buffers = kernel.getBuffers().size();
  text += "// " + kernel.getSummary().str() + "\n";
  SmallVector<std::string> variables;
  for (unsigned i = 0; i < buffers; ++i) {
    variables.push_back(nameBuffer(i));
    text += "//   " + variables[i] + ": " + describeBuffer(i) + "\n";
  }
  std::string threads = std::to_string(shape.threads);
  if ((roles && roles.getRegisters()) || hasFewRows || splitsTerms(kernel))
    threads = "TESSERA_ALONE(" + threads + ")";
  text += "TESSERA_KERNEL(" + kernel.getSymName().str() + ", " + threads +
          ", " + std::to_string(buffers + shape.maps.size()) + ", " +
          std::to_string(kernel.getDynamicSizes()) + ") {\n";
  line("constexpr int kThreads = " + llvm::Twine(shape.threads) + ";");
  // Only launches of kernels with sizes are grouped (GroupLaunches.cpp). A
  // parameter is known to be the same for all threads.
  bool isGrouped = kernel.getDynamicSizes() > 0;
  line(std::string("const auto &instance = launch.") +
       (isGrouped ? "instance();" : "first;"));
  for (unsigned i = 0; i < buffers; ++i)
    if (llvm::Error error = printBuffer(i, variables[i]))
      return error;
  for (size_t i = 0; i < shape.maps.size(); ++i) {
    maps.push_back(fresh("boxes"));
    line("const TensorMap &" + maps.back() +
         " = *instance.buffer<const TensorMap>(" + llvm::Twine(buffers + i) +
         ");");
  }
  for (auto [i, size] : llvm::enumerate(kernel.getSizes())) {
    values[size] = {fresh("size")};
    line("const int64_t " + values[size].text + " = instance.sizes[" +
         llvm::Twine(i) + "];");
  }
  values[kernel.getBlockNumber()] = {fresh("block")};
  line("const int64_t " + values[kernel.getBlockNumber()].text +
       " = blockNumber()" + (isGrouped ? " - instance.firstBlock()" : "") +
       ";");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::print() {
  shape = {kernel.getSymName().str(), target.lanes, kScratchBytes, {}, ""};
  if (std::optional<ArrayRef<int64_t>> warps = kernel.getWarps())
    shape.threads = 32 * (*warps)[0] * (*warps)[1];
  else if (auto threads =
               kernel->getAttrOfType<IntegerAttr>(tile::kThreadsAttr))
    shape.threads = threads.getInt();
  findSlices();
  findMaps();
  kernel.walk([&](tile::MmaOp op) {
    hasWarpgroups |= isOfWarpgroups(op);
    hasFewRows |= isOfFewRows(op);
  });
  if (llvm::Error error = printHeader())
    return error;
  std::string header = std::exchange(text, "");
  if (llvm::Error error = printBlock(kernel.getBody().front()))
    return error;
  std::string body = std::exchange(text, "");
  for (auto &[name, definition] : layouts)
    line("using " + llvm::Twine(name) + " = " + definition + ";");
  text = header + text + body + "}\n";
  return llvm::Error::success();
}

std::string translationUnit(llvm::ArrayRef<llvm::StringRef> kernels,
                            const TileTarget &target) {
  std::string text = "// Made by tessera for " + target.name +
                     "; one kernel a cluster.\n"
                     "#include \"runtime/device/Device.cuh\"\n";
  if (target.warpgroups)
    text += "#include \"runtime/device/Hopper.cuh\"\n";
  text += "\nnamespace tessera::device {\n";
  for (llvm::StringRef kernel : kernels)
    text += ("\n" + kernel).str();
  return text + "\n} // namespace tessera::device\n";
}

llvm::Expected<PrintedKernels> printKernels(ModuleOp module,
                                            const TileTarget &target) {
  PrintedKernels printed;
  llvm::StringSet<> variants;
  for (auto kernel : module.getOps<tile::KernelOp>())
    if (auto names = kernel->getAttrOfType<ArrayAttr>(kKernelVariantsAttr))
      for (auto name : names.getAsRange<FlatSymbolRefAttr>())
        variants.insert(name.getValue());
  for (auto kernel : module.getOps<tile::KernelOp>()) {
    if (failed(gpu::verifyBarriers(kernel.getBody().front())))
      return llvm::createStringError("kernel @" + kernel.getSymName() +
                                     " lacks a barrier");
    KernelPrinter printer(kernel, target);
    if (llvm::Error error = printer.print())
      return std::move(error);
    printed.kernels.push_back(printer.shape);
    printed.kernels.back().isVariant = variants.contains(kernel.getSymName());
    printed.kernels.back().text = std::move(printer.text);
  }
  llvm::SmallVector<llvm::StringRef> definitions;
  for (const KernelShape &kernel : printed.kernels)
    definitions.push_back(kernel.text);
  printed.text = translationUnit(definitions, target);
  return printed;
}

} // namespace tessera::cuda
