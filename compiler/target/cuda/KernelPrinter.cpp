#include "compiler/target/cuda/KernelPrinter.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/tiling/Tiling.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace tessera::cuda {

// Bytes at the start of shared memory that the device library uses
// (kScratchBytes in Tile.cuh).
static constexpr int64_t kScratchBytes = 4096;

//===--- text -------------------------------------------------------------===//

// Names come from models, too: a parameter may be called as C++ has it already.
static bool isTaken(llvm::StringRef name) {
  static constexpr llvm::StringLiteral kKeywords[] = {
      "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case",
      "catch", "char", "class", "concept", "const", "continue", "default",
      "delete", "do", "double", "else", "enum", "explicit", "export", "extern",
      "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
      "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator",
      "or", "private", "protected", "public", "register", "requires", "return",
      "short", "signed", "sizeof", "static", "struct", "switch", "template",
      "this", "throw", "true", "try", "typedef", "typeid", "typename", "union",
      "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
      // of the device library
      "load", "store", "map", "reduce", "slice", "splat", "spread", "iota",
      "read", "write", "stage", "transposed", "multiply", "sync", "launch",
      "instance", "minimum", "maximum", "exp", "exp2", "log", "sqrt", "abs",
      "thread", "lane", "warp"};
  return llvm::is_contained(kKeywords, name);
}

std::string KernelPrinter::fresh(llvm::StringRef hint) {
  std::string name = hint.str();
  if (isTaken(name))
    name += "_";
  unsigned count = names[name]++;
  return count ? name + std::to_string(count) : name;
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
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "kernel @" + kernel.getSymName() + ": " +
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

// Part of its user's expression: constants, broadcasts, and what is used once,
// by arithmetic of the same loop level.
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

// The text of a tile: its name, or the map that computes it.
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

// A tile that becomes a product's operand: pairs take half the registers.
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

//===--- control ----------------------------------------------------------===//

// `to` = what the terminator yields; by way of copies where one new value is
// computed from another's old one.
llvm::Error KernelPrinter::assign(Operation *terminator,
                                  ArrayRef<std::string> to) {
  SmallVector<std::string> from;
  Operation *parent = terminator->getParentOp();
  for (auto [operand, result] :
       llvm::zip_equal(terminator->getOperands(), parent->getResults())) {
    std::string value = isTile(operand.getType())
                            ? tile(operand, layoutOf(result))
                            : scalar(operand).text;
    if (value.empty())
      return unsupported(terminator, "of a value without a CUDA form");
    if (to.size() > 1) {
      std::string name = fresh("next");
      line("const auto " + name + " = " + value + ";");
      value = name;
    }
    from.push_back(value);
  }
  for (auto [target, value] : llvm::zip_equal(to, from))
    if (target != value)
      line(target + " = " + value + ";");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printFor(scf::ForOp loop) {
  SmallVector<std::string> carried;
  for (auto [init, argument, result] : llvm::zip_equal(
           loop.getInitArgs(), loop.getRegionIterArgs(), loop.getResults())) {
    std::string name = fresh("sum");
    line(typeOf(argument) + " " + name + " = " +
         (isTile(init.getType()) ? tile(init, layoutOf(argument))
                                 : scalar(init).text) +
         ";");
    carried.push_back(name);
    values[argument] = values[result] = {name};
  }
  std::string i = fresh("i");
  values[loop.getInductionVar()] = {i};
  if (loop->hasAttr(tile::TileDialect::kUnrollAttr))
    line("TESSERA_UNROLL");
  line("for (int64_t " + i + " = " + scalar(loop.getLowerBound()).text + "; " +
       i + " < " + within(scalar(loop.getUpperBound()), Expression::sum) +
       "; " + i + " += " + scalar(loop.getStep()).text + ") {");
  ++depth;
  synchronizeLoop(loop);
  llvm::DenseSet<Value> before = written; // no turn may be taken
  if (llvm::Error error = printBlock(*loop.getBody()))
    return error;
  written.insert(before.begin(), before.end());
  if (llvm::Error error = assign(loop.getBody()->getTerminator(), carried))
    return error;
  --depth;
  line("}");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printIf(scf::IfOp branch) {
  SmallVector<std::string> results;
  for (Value result : branch.getResults()) {
    results.push_back(fresh("chosen"));
    values[result] = {results.back()};
    line(typeOf(result) + " " + results.back() + ";");
  }
  line("if (" + scalar(branch.getCondition()).text + ") {");
  // A barrier in one branch is none for who takes the other.
  llvm::DenseSet<Value> before = written, after = written;
  for (Region *region : {&branch.getThenRegion(), &branch.getElseRegion()}) {
    if (region->empty())
      continue;
    if (region == &branch.getElseRegion())
      line("} else {");
    ++depth;
    written = before;
    if (llvm::Error error = printBlock(region->front()))
      return error;
    if (llvm::Error error = assign(region->front().getTerminator(), results))
      return error;
    --depth;
    after.insert(written.begin(), written.end());
  }
  written = std::move(after);
  line("}");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, llvm::Error>(op)
      .Case([&](scf::ForOp o) { return printFor(o); })
      .Case([&](scf::IfOp o) { return printIf(o); })
      .Case([&](tile::LoadOp o) { return printLoad(o); })
      .Case([&](tile::StoreOp o) { return printStore(o); })
      .Case([&](tile::AllocOp o) { return printAlloc(o); })
      .Case([&](tile::ReduceOp o) { return printReduce(o); })
      .Case([&](memref::ReinterpretCastOp o) { return printView(o); })
      .Case([&](memref::LoadOp o) -> llvm::Error {
        Memory &memory = memories[o.getMemRef()];
        synchronize(memory.root, false);
        readByAll.insert(memory.root);
        define(o.getResult(), "value",
               "read(" + address(memory, o.getIndices()) + ")");
        return llvm::Error::success();
      })
      .Case([&](memref::StoreOp o) -> llvm::Error {
        Memory &memory = memories[o.getMemRef()];
        if (readByAll.contains(memory.root)) // one thread writes it
          printBarrier();
        line("write(" + scalar(o.getValue()).text + ", " +
             address(memory, o.getIndices()) + ");");
        synchronize(memory.root, true);
        return llvm::Error::success();
      })
      .Case([&](tile::IotaOp o) { return printIota(o); })
      .Case([&](tile::CopyOp o) { return printCopy(o); })
      .Case([&](tile::MmaOp o) { return printMma(o); })
      .Case([&](tile::MakeRingOp o) { return printRing(o); })
      .Case([&](tile::RolesOp o) { return printRoles(o); })
      .Case([&](tile::BulkCopyOp o) { return printBulkCopy(o); })
      .Case([&](tile::MmaAsyncOp o) { return printMmaAsync(o); })
      .Case<tile::AcquireOp, tile::AwaitOp, tile::ReleaseOp, tile::MmaWaitOp,
            tile::TurnOp>([&](auto) { return printInRole(op); })
      .Case([&](tile::SliceOp o) -> llvm::Error {
        define(o.getResult(), "part",
               "slice<" + layoutOf(o.getResult()) + ">(" + tile(o.getInput()) +
                   ", " + scalar(o.getRow()).text + ", " +
                   scalar(o.getColumn()).text + ")");
        return llvm::Error::success();
      })
      .Case<tile::CommitOp>([&](auto) -> llvm::Error {
        line("commitCopies();");
        return llvm::Error::success();
      })
      .Case([&](tile::WaitOp o) -> llvm::Error {
        line("waitCopies<" + llvm::Twine(o.getPending()) + ">();");
        if (hasWarpgroups) // wgmma reads by another way than copies write
          line("fenceAsync();");
        line(barrier);
        written.clear();
        readByAll.clear();
        return llvm::Error::success();
      })
      .Case([&](vector::InterleaveOp o) -> llvm::Error {
        define(o.getResult(), "tile",
               "interleave(" + tile(o.getLhs()) + ", " + tile(o.getRhs()) +
                   ")");
        return llvm::Error::success();
      })
      // A reduction's result is a scalar here already.
      .Case([&](vector::ExtractOp o) -> llvm::Error {
        auto from = cast<VectorType>(o.getVector().getType());
        if (from.getRank() != 0)
          return unsupported(o, "of a tile's element has no CUDA form");
        values[o.getResult()] = scalar(o.getVector());
        return llvm::Error::success();
      })
      .Case([&](vector::ExtractElementOp o) -> llvm::Error {
        values[o.getResult()] = scalar(o.getVector());
        return llvm::Error::success();
      })
      .Case<tile::BarrierOp>([&](auto) -> llvm::Error {
        line(barrier);
        written.clear();
        readByAll.clear();
        return llvm::Error::success();
      })
      .Default([&](Operation *o) -> llvm::Error {
        if (auto constant = dyn_cast<arith::ConstantOp>(o);
            constant && !isInlined(o))
          return printConstantTile(constant);
        if (isInlined(o))
          return llvm::Error::success();
        if (isElementwise(o) || isa<arith::MulUIExtendedOp>(o))
          return printTile(o);
        return unsupported(o, "has no CUDA form");
      });
}

llvm::Error KernelPrinter::printBlock(Block &block) {
  for (Operation &op : block)
    if (!op.hasTrait<OpTrait::IsTerminator>())
      if (llvm::Error error = printOp(&op))
        return error;
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

llvm::Error KernelPrinter::printHeader() {
  std::string name = kernel.getSymName().str();
  text += "// " + kernel.getSummary().str() + "\n";
  SmallVector<std::string> variables;
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers())) {
    unsigned argument = 1 + kernel.getDynamicSizes() + i;
    auto called =
        kernel.getArgAttrOfType<StringAttr>(argument, kBufferNameAttr);
    auto shaped =
        kernel.getArgAttrOfType<StringAttr>(argument, kBufferShapeAttr);
    auto type = cast<MemRefType>(buffer.getType());
    variables.push_back(
        fresh(called ? called.getValue().str() : "b" + std::to_string(i)));
    text += "//   " + variables.back() + ": " +
            (shaped ? shaped.getValue().str() + " " +
                          typeName(type.getElementType()).str()
                    : describe(type)) +
            ", " + tile::stringifyAccess(kernel.getBufferAccess(i)).str() +
            "\n";
  }
  std::string threads = std::to_string(shape.threads);
  if (roles && roles.getRegisters())
    threads = "TESSERA_ALONE(" + threads + ")";
  text += "TESSERA_KERNEL(" + name + ", " + threads + ", " +
          std::to_string(kernel.getBuffers().size() + shape.maps.size()) +
          ", " + std::to_string(kernel.getDynamicSizes()) + ") {\n";
  line("constexpr int kThreads = " + llvm::Twine(shape.threads) + ";");
  // Only launches of kernels with sizes are grouped (GroupLaunches.cpp). An
  // instance that is a parameter is known to be the same for all threads.
  bool isGrouped = kernel.getDynamicSizes() > 0;
  line(std::string("const auto &instance = launch.") +
       (isGrouped ? "instance();" : "first;"));
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers())) {
    auto type = cast<MemRefType>(buffer.getType());
    bool isRead = kernel.getBufferAccess(i) == tile::Access::read;
    std::string element = typeName(type.getElementType()).str(),
                variable = variables[i];
    if (element.empty())
      return unsupported(kernel, "has a buffer of a type that CUDA kernels do "
                                 "not hold");
    line((isRead ? "const " : "") + element + " *" + variable +
         " = instance.buffer<" + (isRead ? "const " : "") + element + ">(" +
         llvm::Twine(i) + ");");
    memories[buffer] = {variable, {"0"}, {{"1"}}, buffer};
  }
  for (size_t i = 0; i < shape.maps.size(); ++i) {
    maps.push_back(fresh("boxes"));
    line("const TensorMap &" + maps.back() +
         " = *instance.buffer<const TensorMap>(" +
         llvm::Twine(kernel.getBuffers().size() + i) + ");");
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
  findSlices();
  findMaps();
  kernel.walk([&](tile::MmaOp op) { hasWarpgroups |= isOfWarpgroups(op); });
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
  for (auto kernel : module.getOps<tile::KernelOp>()) {
    KernelPrinter printer(kernel, target);
    if (llvm::Error error = printer.print())
      return std::move(error);
    printed.kernels.push_back(printer.shape);
    printed.kernels.back().text = std::move(printer.text);
  }
  llvm::SmallVector<llvm::StringRef> texts;
  for (const KernelShape &kernel : printed.kernels)
    texts.push_back(kernel.text);
  printed.text = translationUnit(texts, target);
  return printed;
}

} // namespace tessera::cuda
