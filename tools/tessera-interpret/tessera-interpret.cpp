// Runs a function of graph IR in double precision and prints its results.
#include "compiler/interpreter/Interpreter.h"
#include "compiler/interpreter/TensorFiles.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/folding/Folding.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/xxhash.h"
#include <cmath>
#include <random>

using namespace tessera::interpreter;
namespace cl = llvm::cl;

static cl::OptionCategory category("tessera-interpret");
static cl::opt<std::string> file(cl::Positional,
                                 cl::desc("FILE.mlir ('-': standard input)"),
                                 cl::init("-"), cl::cat(category));
static cl::opt<std::string>
    name("function", cl::desc("function to run (default: the only public one)"),
         cl::value_desc("NAME"), cl::cat(category));
static cl::opt<std::string> inputPath(
    "inputs",
    cl::desc(
        "read inputs by name: graph.state, graph.input, or arg0, arg1, ..."),
    cl::value_desc("FILE.safetensors"), cl::cat(category));
static cl::opt<std::string>
    outputPath("outputs",
               cl::desc("write results by name: graph.state, graph.output, or "
                        "result0, result1, ..."),
               cl::value_desc("FILE.safetensors"), cl::cat(category));
static cl::opt<uint64_t>
    seed("seed",
         cl::desc("seed of random inputs, without --inputs (default: 0)"),
         cl::init(0), cl::cat(category));
static cl::opt<int64_t>
    integers("integers",
             cl::desc("draw random integers from [0, N) (default: 2)"),
             cl::init(2), cl::value_desc("N"), cl::cat(category));
static cl::opt<bool>
    roundToType("round", cl::desc("round every result to its element type"),
                cl::cat(category));
static cl::opt<bool> values("values",
                            cl::desc("print all elements, not only a summary"),
                            cl::cat(category));

static int makeError(const llvm::Twine &message) {
  llvm::WithColor::error(llvm::errs(), "tessera-interpret") << message << "\n";
  return 1;
}

static mlir::func::FuncOp findFunction(mlir::ModuleOp module) {
  if (!name.empty())
    return module.lookupSymbol<mlir::func::FuncOp>(name);
  mlir::func::FuncOp only;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    if (function.isPublic())
      only = only ? mlir::func::FuncOp() : function;
  return only;
}

// Floats uniform in [-1, 1).
static llvm::Expected<Tensors> randomInputs(mlir::func::FuncOp function) {
  std::mt19937_64 engine(seed);
  Tensors inputs;
  for (mlir::Type type : function.getArgumentTypes()) {
    if (!isInterpretable(type))
      return llvm::createStringError(
          llvm::inconvertibleErrorCode(),
          "an argument is not a tensor of static shape, or is too large for "
          "the interpreter");
    auto ranked = mlir::cast<mlir::RankedTensorType>(type);
    Tensor tensor(ranked.getShape());
    for (double &value : tensor.data) {
      double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
      value = mlir::isa<mlir::IntegerType>(ranked.getElementType())
                  ? std::floor(unit * static_cast<double>(
                                          std::max<int64_t>(integers, 1)))
                  : 2.0 * unit - 1.0;
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

static void print(llvm::StringRef resultName, mlir::Type type,
                  const Tensor &tensor) {
  double min = INFINITY, max = -INFINITY, sum = 0, squares = 0;
  int64_t notNumbers = 0;
  for (double value : tensor.data) {
    notNumbers += std::isnan(value);
    min = std::fmin(min, value);
    max = std::fmax(max, value);
    sum += value;
    squares += value * value;
  }
  auto count = static_cast<double>(std::max<int64_t>(tensor.size(), 1));
  llvm::ArrayRef bytes(reinterpret_cast<const uint8_t *>(tensor.data.data()),
                       tensor.data.size() * sizeof(double));
  llvm::outs() << resultName << ": " << type << " min "
               << llvm::format("%.9g", min) << " max "
               << llvm::format("%.9g", max) << " mean "
               << llvm::format("%.9g", sum / count) << " rms "
               << llvm::format("%.9g", std::sqrt(squares / count)) << " nan "
               << notNumbers << " hash "
               << llvm::format_hex_no_prefix(llvm::xxh3_64bits(bytes), 16)
               << "\n";
  if (!values)
    return;
  for (auto [i, value] : llvm::enumerate(tensor.data))
    llvm::outs() << (i ? " " : "  ") << llvm::format("%.17g", value);
  llvm::outs() << "\n";
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "runs a function of graph IR in double precision, as a reference\n");
  // Only graph IR is interpreted: lower levels must compute the same values.
  mlir::MLIRContext context;
  context.loadDialect<tessera::graph::GraphDialect, mlir::func::FuncDialect>();
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(file, &context);
  if (!module)
    return 1;
  // Restore deduplicated layers: a folded layer represents several.
  mlir::PassManager pipeline(&context);
  pipeline.addPass(tessera::createRestoreLayers());
  if (mlir::failed(pipeline.run(*module)))
    return 1;
  mlir::func::FuncOp function = findFunction(*module);
  if (!function)
    return makeError(name.empty()
                         ? "the module does not have exactly one public "
                           "function; choose one with --function"
                         : "the module has no function @" + name);
  llvm::Expected<Tensors> inputs = inputPath.empty()
                                       ? randomInputs(function)
                                       : readInputs(function, inputPath);
  if (!inputs)
    return makeError(llvm::toString(inputs.takeError()));
  llvm::Expected<Tensors> results =
      interpret(*module, function.getName(), *inputs, {roundToType});
  if (!results)
    return makeError(llvm::toString(results.takeError()));
  for (auto [resultName, type, tensor] : llvm::zip_equal(
           resultNames(function), function.getResultTypes(), *results))
    print(resultName, type, tensor);
  if (!outputPath.empty())
    if (llvm::Error error = writeResults(function, *results, outputPath))
      return makeError(llvm::toString(std::move(error)));
  return 0;
}
