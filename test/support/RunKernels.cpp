#include "test/support/RunKernels.h"
#include "compiler/InitAll.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/Tiling.h"
#include "test/support/KernelCode.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cstring>

using namespace mlir;

namespace tessera::testing {

using interpreter::Tensor;
using interpreter::Tensors;
using Buffer = std::shared_ptr<HostBuffer>;

MLIRContext &kernelContext() {
  static auto *context = [] {
    DialectRegistry registry;
    registerAllDialects(registry);
    cpu::registerCpuTarget(registry);
    auto *made = new MLIRContext(registry);
    made->loadAllAvailableDialects();
    return made;
  }();
  return *context;
}

struct KernelProgram::Code {
  ModuleOp kernels;
  std::unique_ptr<KernelCode> compiled;
};

KernelProgram::~KernelProgram() = default;

const cpu::CodeObject &KernelProgram::object() const {
  static const cpu::CodeObject none;
  return code->compiled ? *code->compiled->object() : none;
}

static llvm::Error failure(Operation *op, const llvm::Twine &what) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 llvm::Twine(op->getName().getStringRef()) +
                                     ": " + what);
}

llvm::Expected<std::unique_ptr<KernelProgram>>
KernelProgram::compile(ModuleOp module, llvm::StringRef targetName) {
  std::optional<TileTarget> target = lookupTileTarget(targetName);
  if (!target)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "unknown target " + targetName);
  std::unique_ptr<KernelProgram> program(new KernelProgram());
  program->module = module;
  program->code = std::make_unique<Code>();
  Code &code = *program->code;
  for (auto nested : module.getOps<ModuleOp>())
    if (auto name = nested->getAttrOfType<StringAttr>(kTargetAttr))
      if (name.getValue() == targetName)
        code.kernels = nested;
  // A function of views alone has no kernels.
  if (!code.kernels)
    return program;
  auto compiled = targetName.starts_with("cuda:")
                      ? compileForEmulatedGpu(code.kernels, *target)
                      : compileForCpu(code.kernels, *target);
  if (!compiled)
    return compiled.takeError();
  code.compiled = std::move(*compiled);
  return program;
}

namespace {

// Executes the ops of one function, innermost first.
class Execution {
public:
  Execution(ModuleOp kernels, KernelCode *code, const RunOptions &options)
      : kernels(kernels), code(code), options(options) {}

  llvm::Error block(Block &block);
  Buffer &operator[](Value value) { return buffers[value]; }

private:
  llvm::Error step(Operation *op);
  llvm::Error launch(tile::LaunchOp op);
  llvm::Error instance(tile::LaunchOp op, tile::KernelOp kernel, int64_t i);
  llvm::Error loop(graph::LoopOp op);
  llvm::Error concat(graph::ConcatOp op);
  llvm::Error view(Operation *op, int64_t offset);
  Buffer inPlaceOf(tile::LaunchOp op, int64_t i, int64_t result,
                   MutableArrayRef<Buffer> operands,
                   SmallVectorImpl<int64_t> &taken);
  int64_t index(Value scalar) {
    return static_cast<int64_t>(buffers[scalar]->values({}).data[0]);
  }

  ModuleOp kernels;
  KernelCode *code;
  const RunOptions &options;
  llvm::DenseMap<Value, Buffer> buffers;
};

} // namespace

// The bytes of a view, copied.
llvm::Error Execution::view(Operation *op, int64_t offset) {
  Value result = op->getResult(0);
  const Buffer &from = buffers[op->getOperand(0)];
  auto made = std::make_shared<HostBuffer>(graph::tensorType(result));
  if (offset < 0 || offset + made->bytes() > from->bytes())
    return failure(op, "reads outside of its input");
  std::memcpy(made->data(), from->data() + offset, made->bytes());
  buffers[result] = made;
  return llvm::Error::success();
}

// A copy of an operand that result `result` of instance `i` may take the place
// of; the launch then reads the copy.
Buffer Execution::inPlaceOf(tile::LaunchOp op, int64_t i, int64_t result,
                            MutableArrayRef<Buffer> operands,
                            SmallVectorImpl<int64_t> &taken) {
  if (!options.inPlace || !op.getReuse())
    return {};
  ArrayRef<int64_t> reuse = *op.getReuse();
  for (size_t p = 0; p < reuse.size(); p += 2) {
    int64_t operand = reuse[p];
    if (reuse[p + 1] != result || llvm::is_contained(taken, operand))
      continue;
    taken.push_back(operand);
    auto type =
        cast<RankedTensorType>(op.getInstanceOutputs(i)[result].getType());
    auto made = std::make_shared<HostBuffer>(type);
    std::memcpy(made->data(), operands[operand]->data(), made->bytes());
    operands[operand] = made;
    return made;
  }
  return {};
}

llvm::Error Execution::instance(tile::LaunchOp op, tile::KernelOp kernel,
                                int64_t i) {
  SmallVector<Buffer> operands, all;
  for (Value input : op.getInstanceInputs(i))
    operands.push_back(buffers[input]);
  SmallVector<Buffer> results;
  SmallVector<int64_t> taken;
  int64_t operand = 0;
  // Which operand a read_write buffer is.
  for (unsigned b = 0; b < kernel.getBuffers().size(); ++b) {
    tile::Access access = kernel.getBufferAccess(b);
    if (access == tile::Access::read_write) {
      operands[operand] = std::make_shared<HostBuffer>(*operands[operand]);
      results.push_back(operands[operand]);
      taken.push_back(operand);
    } else if (access == tile::Access::write) {
      results.push_back({});
    }
    operand += access != tile::Access::write;
  }
  for (auto [r, result] : llvm::enumerate(op.getInstanceOutputs(i))) {
    if (!results[r])
      results[r] = inPlaceOf(op, i, r, operands, taken);
    if (!results[r])
      results[r] = std::make_shared<HostBuffer>(
          cast<RankedTensorType>(result.getType()));
    buffers[result] = results[r];
  }
  unsigned nextOperand = 0, nextResult = 0;
  for (unsigned b = 0; b < kernel.getBuffers().size(); ++b) {
    tile::Access access = kernel.getBufferAccess(b);
    all.push_back(access == tile::Access::write ? results[nextResult]
                                                : operands[nextOperand]);
    nextOperand += access != tile::Access::write;
    nextResult += access != tile::Access::read;
  }
  int64_t sizes = kernel.getDynamicSizes();
  KernelCall call{kernel, all, op.getSizes().slice(i * sizes, sizes),
                  op.getBlocks()[i]};
  if (llvm::Error error = code->run(call, options))
    return error;
  for (const Buffer &buffer : all)
    if (!buffer->isIntact())
      return failure(op,
                     "kernel " + op.getKernel() + " wrote outside of a buffer");
  return llvm::Error::success();
}

llvm::Error Execution::launch(tile::LaunchOp op) {
  auto kernel = kernels ? kernels.lookupSymbol<tile::KernelOp>(op.getKernel())
                        : tile::KernelOp();
  if (!kernel)
    return failure(op, "no kernel " + op.getKernel());
  for (int64_t i = 0; i < op.getNumInstances(); ++i)
    if (llvm::Error error = instance(op, kernel, i))
      return error;
  return llvm::Error::success();
}

llvm::Error Execution::loop(graph::LoopOp op) {
  Block &body = op.getBody().front();
  SmallVector<Buffer> carried;
  for (Value init : op.getInits())
    carried.push_back(buffers[init]);
  for (uint64_t turn = 0; turn < op.getTrip(); ++turn) {
    Tensor number(ArrayRef<int64_t>{}, static_cast<double>(turn));
    buffers[op.getInduction()] = std::make_shared<HostBuffer>(
        graph::tensorType(op.getInduction()), number);
    for (auto [argument, buffer] : llvm::zip_equal(op.getCarried(), carried))
      buffers[argument] = buffer;
    if (llvm::Error error = block(body))
      return error;
    for (auto [buffer, value] :
         llvm::zip_equal(carried, op.getYield().getValues()))
      buffer = buffers[value];
  }
  for (auto [result, buffer] : llvm::zip_equal(op.getResults(), carried))
    buffers[result] = buffer;
  return llvm::Error::success();
}

static Tensor constantValues(graph::ConstantOp op) {
  auto elements = cast<DenseElementsAttr>(op.getValue());
  Tensor tensor(elements.getType().getShape());
  Type type = elements.getElementType();
  int64_t i = 0;
  if (isa<FloatType>(type)) {
    for (APFloat value : elements.getValues<APFloat>())
      tensor.data[i++] = value.convertToDouble();
    return tensor;
  }
  bool isUnsigned = type.isInteger(1) || type.isUnsignedInteger();
  for (APInt value : elements.getValues<APInt>())
    tensor.data[i++] = static_cast<double>(
        isUnsigned ? static_cast<int64_t>(value.getZExtValue())
                   : value.getSExtValue());
  return tensor;
}

static int64_t entryBytes(Value value) {
  RankedTensorType type = graph::tensorType(value);
  return type.getNumElements() / type.getDimSize(0) *
         storedBytes(type.getElementType());
}

// Of rows, one after the other.
llvm::Error Execution::concat(graph::ConcatOp op) {
  if (op.getDim() != 0)
    return failure(op, "along another dimension than the first is a kernel's");
  auto made = std::make_shared<HostBuffer>(graph::tensorType(op.getResult()));
  std::byte *to = made->data();
  for (Value input : op.getInputs()) {
    const Buffer &from = buffers[input];
    std::memcpy(to, from->data(), from->bytes());
    to += from->bytes();
  }
  buffers[op.getResult()] = made;
  return llvm::Error::success();
}

llvm::Error Execution::step(Operation *op) {
  return llvm::TypeSwitch<Operation *, llvm::Error>(op)
      .Case([&](tile::LaunchOp launchOp) { return launch(launchOp); })
      .Case([&](graph::LoopOp loopOp) { return loop(loopOp); })
      .Case([&](graph::ReshapeOp) { return view(op, 0); })
      .Case([&](graph::ConstantOp constant) {
        buffers[constant.getResult()] = std::make_shared<HostBuffer>(
            graph::tensorType(constant.getResult()), constantValues(constant));
        return llvm::Error::success();
      })
      .Case([&](graph::SliceOp slice) {
        int64_t offset = 0;
        for (auto [start, size] :
             llvm::zip_equal(slice.getStart(),
                             graph::tensorType(slice.getInput()).getShape()))
          offset = offset * size + start;
        return view(
            op,
            offset * storedBytes(
                         graph::tensorType(slice.getInput()).getElementType()));
      })
      .Case([&](graph::DynamicSliceOp slice) {
        return view(op, index(slice.getIndex()) * entryBytes(slice.getInput()));
      })
      .Case([&](graph::DynamicUpdateOp update) -> llvm::Error {
        auto made = std::make_shared<HostBuffer>(*buffers[update.getInput()]);
        int64_t entry = entryBytes(update.getInput());
        std::memcpy(made->data() + index(update.getIndex()) * entry,
                    buffers[update.getUpdate()]->data(), entry);
        buffers[update.getResult()] = made;
        return llvm::Error::success();
      })
      .Case([&](graph::ConcatOp stack) { return concat(stack); })
      .Default([](Operation *other) {
        return failure(other, "is nothing that planning takes");
      });
}

llvm::Error Execution::block(Block &block) {
  for (Operation &op : block.without_terminator())
    if (llvm::Error error = step(&op))
      return error;
  return llvm::Error::success();
}

llvm::Expected<Tensors> KernelProgram::run(llvm::StringRef name,
                                           ArrayRef<Tensor> inputs,
                                           const RunOptions &options) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function || function.getNumArguments() != inputs.size())
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "no function @" + name + " of " +
                                       llvm::Twine(inputs.size()) + " inputs");
  Execution execution(code->kernels, code->compiled.get(), options);
  for (auto [argument, input] :
       llvm::zip_equal(function.getArguments(), inputs))
    execution[argument] =
        std::make_shared<HostBuffer>(graph::tensorType(argument), input);
  Block &body = function.getBody().front();
  if (llvm::Error error = execution.block(body))
    return std::move(error);
  Tensors results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(
        execution[value]->values(graph::tensorType(value).getShape()));
  return results;
}

llvm::Expected<Tensor> runMain(const std::string &text,
                               const std::string &target,
                               llvm::ArrayRef<Tensor> inputs, bool byteRows) {
  return MainPrograms(target, byteRows).run(text, inputs);
}

struct MainPrograms::Program {
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<KernelProgram> kernels;
};

MainPrograms::MainPrograms(std::string target, bool byteRows)
    : target(std::move(target)), byteRows(byteRows) {}
MainPrograms::~MainPrograms() = default;

llvm::Expected<Tensor> MainPrograms::run(const std::string &text,
                                         llvm::ArrayRef<Tensor> inputs,
                                         const RunOptions &options) {
  std::unique_ptr<Program> &program = programs[text];
  if (!program) {
    auto made = std::make_unique<Program>();
    made->module = parseSourceString<ModuleOp>(text, &kernelContext());
    if (!made->module)
      return llvm::createStringError("no module");
    PassManager pipeline(&kernelContext());
    buildFusionPipeline(pipeline);
    pipeline.addPass(createVerifyFused());
    buildSelectionPipeline(pipeline, {target}, byteRows);
    buildKernelsPipeline(pipeline, {target});
    if (failed(pipeline.run(*made->module)))
      return llvm::createStringError("no kernels");
    if (llvm::Error error = KernelProgram::compile(*made->module, target)
                                .moveInto(made->kernels))
      return std::move(error);
    program = std::move(made);
  }
  auto results = program->kernels->run("main", inputs, options);
  if (!results)
    return results.takeError();
  return results->front();
}

std::vector<std::string> numericsOf(llvm::StringRef target) {
  if (!target.starts_with("cuda:"))
    return {""};
  return {"exact", "hardware"};
}

} // namespace tessera::testing
