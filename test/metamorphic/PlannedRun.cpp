#include "test/metamorphic/PlannedRun.h"
#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "passes/planning/Planning.h"
#include "passes/planning/ProgramPlanner.h"
#include "runtime/hal/Session.h"
#include "test/support/HostBuffer.h"
#include "test/support/RunKernels.h"
#include <cstring>
#include <random>

using namespace mlir;
using tessera::interpreter::Tensor;
using tessera::interpreter::Tensors;

namespace tessera::metamorphic {

struct PlannedRun::Opened {
  unsigned threads;
  std::vector<std::byte> memory; ///< the artifact, 16-byte aligned
  std::unique_ptr<hal::Session> session;
};

PlannedRun::~PlannedRun() = default;

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

//===--- names ------------------------------------------------------------===//

// The argument that `value` is, or is a view of.
static BlockArgument argumentOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!planning::isView(op))
      return {};
    value = op->getOperand(0);
  }
  return cast<BlockArgument>(value);
}

// Planning refuses to give back old state under another name.
static bool isReturnedElsewhere(func::FuncOp function, unsigned argument,
                                unsigned result) {
  Operation *ret = function.front().getTerminator();
  return llvm::any_of(ret->getOpOperands(), [&](OpOperand &operand) {
    return operand.getOperandNumber() != result &&
           argumentOf(operand.get()) == function.getArgument(argument);
  });
}

// What planning asks of functions: every argument an input or state, every
// result an output or state.
static void nameTensors(func::FuncOp function, std::mt19937_64 &engine) {
  OpBuilder b(function.getContext());
  std::string prefix = function.getSymName().str() + ".";
  SmallVector<DictionaryAttr> arguments, results;
  auto named = [&](StringRef attr, const std::string &name) {
    SmallVector<NamedAttribute> attrs{
        b.getNamedAttr(attr, b.getStringAttr(name))};
    if (attr == graph::kStateAttr)
      attrs.push_back(b.getNamedAttr(
          graph::kRoleAttr,
          graph::RoleAttr::get(b.getContext(), graph::Role::parameter)));
    return b.getDictionaryAttr(attrs);
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    arguments.push_back(
        named(graph::kInputAttr, prefix + "in" + std::to_string(i)));
  llvm::DenseSet<unsigned> taken;
  for (unsigned r = 0; r < function.getNumResults(); ++r) {
    results.push_back(
        named(graph::kOutputAttr, prefix + "out" + std::to_string(r)));
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (function.getArgumentTypes()[i] == function.getResultTypes()[r] &&
          engine() % 2 && !isReturnedElsewhere(function, i, r) &&
          taken.insert(i).second) {
        arguments[i] = results[r] =
            named(graph::kStateAttr, prefix + "state" + std::to_string(i));
        break;
      }
  }
  function.setAllArgAttrs(arguments);
  function.setAllResultAttrs(results);
}

//===--- building ---------------------------------------------------------===//

llvm::Expected<std::unique_ptr<PlannedRun>>
PlannedRun::build(ModuleOp module, const testing::KernelProgram &kernels,
                  StringRef target, uint64_t seed) {
  std::unique_ptr<PlannedRun> run(new PlannedRun());
  run->target = target.str();
  OwningOpRef<ModuleOp> planned(module.clone());
  std::mt19937_64 engine(seed);
  for (auto function : planned->getOps<func::FuncOp>())
    nameTensors(function, engine);
  run->signatures = OwningOpRef<ModuleOp>(planned->clone());
  std::string diagnostics;
  ScopedDiagnosticHandler handler(
      module.getContext(), [&](Diagnostic &diagnostic) {
        diagnostics += (diagnostics.empty() ? "" : "; ") + diagnostic.str();
        return success();
      });
  PassManager planning(module.getContext());
  buildPlanningPipeline(planning);
  if (failed(planning.run(*planned)))
    return failure("planning: " + diagnostics);
  CodeObject code;
  code.target = target.str();
  code.features = cpu::requiredFeatures(target);
  code.elf = kernels.object().elf;
  for (const auto &entry : kernels.object().scratchBytes)
    code.scratch[entry.getKey()] = static_cast<int64_t>(entry.getValue());
  llvm::Expected<std::string> artifact =
      writeArtifact(DevicePart{"cpu", *planned, {code}, {}}, {});
  if (!artifact)
    return artifact.takeError();
  run->bytes = std::move(*artifact);
  // What the runtime refuses is the module's failure, not that of one run.
  if (llvm::Expected<Opened *> opened = run->open(1); !opened)
    return opened.takeError();
  return run;
}

llvm::Expected<PlannedRun::Opened *> PlannedRun::open(unsigned threads) {
  for (const auto &opened : sessions)
    if (opened->threads == threads)
      return opened.get();
  auto opened = std::make_unique<Opened>();
  opened->threads = threads;
  opened->memory.resize(bytes.size());
  std::memcpy(opened->memory.data(), bytes.data(), bytes.size());
  StatusOr<ArtifactReader> reader =
      ArtifactReader::fromBytes(opened->memory, "planned");
  if (!reader.ok())
    return failure(reader.message());
  hal::SessionOptions options;
  options.deviceOptions.threads = threads;
  options.deviceOptions.cpuTarget = target;
  auto session = hal::Session::open(*reader, options);
  if (!session.ok())
    return failure(session.message());
  opened->session = session.take();
  sessions.push_back(std::move(opened));
  return sessions.back().get();
}

//===--- running ----------------------------------------------------------===//

static llvm::Error checked(const Status &status) {
  return status.ok() ? llvm::Error::success() : failure(status.message());
}

static llvm::Error write(hal::Session &session, func::FuncOp function,
                         ArrayRef<Tensor> inputs) {
  std::string program = function.getSymName().str();
  for (auto [i, input] : llvm::enumerate(inputs)) {
    testing::HostBuffer buffer(graph::tensorType(function.getArgument(i)),
                               input);
    std::span<const std::byte> from(buffer.data(), buffer.bytes());
    auto state = function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr);
    auto name = function.getArgAttrOfType<StringAttr>(i, graph::kInputAttr);
    Status status = state ? session.writeState(state.getValue(), from)
                          : session.writeInput(program, name.getValue(), from);
    if (llvm::Error error = checked(status))
      return error;
  }
  return llvm::Error::success();
}

static llvm::Expected<Tensors> read(hal::Session &session,
                                    func::FuncOp function) {
  std::string program = function.getSymName().str();
  Tensors results;
  for (unsigned r = 0; r < function.getNumResults(); ++r) {
    auto type = cast<RankedTensorType>(function.getResultTypes()[r]);
    testing::HostBuffer buffer(type);
    std::span<std::byte> to(buffer.data(), buffer.bytes());
    auto state = function.getResultAttrOfType<StringAttr>(r, graph::kStateAttr);
    auto name = function.getResultAttrOfType<StringAttr>(r, graph::kOutputAttr);
    Status status = state ? session.readState(state.getValue(), to)
                          : session.readOutput(program, name.getValue(), to);
    if (llvm::Error error = checked(status))
      return std::move(error);
    results.push_back(buffer.values(type.getShape()));
  }
  return results;
}

llvm::Expected<Tensors> PlannedRun::run(StringRef name, ArrayRef<Tensor> inputs,
                                        unsigned threads) {
  llvm::Expected<Opened *> opened = open(threads);
  if (!opened)
    return opened.takeError();
  hal::Session &session = *(*opened)->session;
  auto function = signatures->lookupSymbol<func::FuncOp>(name);
  for (int turn = 0; turn < 2; ++turn) {
    if (llvm::Error error = write(session, function, inputs))
      return std::move(error);
    if (llvm::Error error = checked(session.run(name)))
      return std::move(error);
  }
  return read(session, function);
}

} // namespace tessera::metamorphic
