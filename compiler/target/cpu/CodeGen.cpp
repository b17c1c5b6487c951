#include "compiler/target/cpu/CodeGen.h"
#include "runtime/support/CompilationCount.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <mutex>

using namespace llvm;

namespace tessera::cpu {

static constexpr StringLiteral kTriple = "x86_64-unknown-linux-gnu";

// Kernels arrive in their final form: tiles are unrolled, loops are few and
// nothing is left to inline. What remains is folding, hoisting and loop
// rotation; a full O3 pipeline takes four times as long for the same code.
static constexpr StringLiteral kPipeline =
    "function(early-cse,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm),early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg)";

namespace {
struct Machine {
  StringRef cpu, tune;
  std::string features;
};
} // namespace

// LLVM's names of the features that Linux calls avx512_vnni and amx_tile are
// avx512vnni and amx-tile.
static std::string llvmFeature(StringRef name) {
  std::string result;
  for (char c : name)
    if (c != '_')
      result += c;
    else if (name.starts_with("amx"))
      result += '-';
  return result;
}

static Machine machineOf(const TileTarget &target) {
  SmallVector<std::string> features;
  for (const std::string &name : target.features)
    features.push_back("+" + llvmFeature(name));
  bool isWide = target.lanes == 16;
  return {isWide ? "x86-64-v4" : "x86-64-v3", isWide ? "znver4" : "znver3",
          join(features, ",")};
}

std::string codeGenVersion(const TileTarget &target) {
  Machine machine = machineOf(target);
  return (Twine("llvm " LLVM_VERSION_STRING " ") + kPipeline + " " +
          machine.cpu + " " + machine.tune + " " + machine.features)
      .str();
}

static void optimize(Module &module, TargetMachine &machine) {
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  ModulePassManager passes;
  cantFail(builder.parsePassPipeline(passes, kPipeline));
  passes.run(module, modules);
}

Expected<std::string> emitObject(Module &module, const TileTarget &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  std::string message;
  const Target *x86 = TargetRegistry::lookupTarget(kTriple.str(), message);
  if (!x86)
    return createStringError("cannot find LLVM's x86 target: " + message);
  Machine model = machineOf(target);
  std::unique_ptr<TargetMachine> machine(x86->createTargetMachine(
      kTriple, model.cpu, model.features, TargetOptions(), Reloc::PIC_,
      CodeModel::Small, CodeGenOptLevel::Default));
  module.setTargetTriple(kTriple);
  module.setDataLayout(machine->createDataLayout());
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", model.cpu);
    function.addFnAttr("tune-cpu", model.tune);
    function.addFnAttr("target-features", model.features);
    function.addFnAttr("prefer-vector-width",
                       target.lanes == 16 ? "512" : "256");
    function.addFnAttr(Attribute::NoUnwind);
  }
  optimize(module, *machine);
  SmallVector<char, 0> object;
  raw_svector_ostream stream(object);
  legacy::PassManager emission;
  if (machine->addPassesToEmitFile(emission, stream, nullptr,
                                   CodeGenFileType::ObjectFile))
    return createStringError("cannot emit objects for " + kTriple);
  emission.run(module);
  ++compilationCount;
  return std::string(object.begin(), object.end());
}

} // namespace tessera::cpu
