#include "compiler/target/cuda/HostCode.h"
#include "compiler/target/cuda/ExternalCompiler.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

namespace tessera::cuda {

llvm::Expected<std::string> compileForHost(llvm::StringRef text) {
  std::string name = llvm::sys::Process::GetEnv("CXX").value_or("c++");
  auto compiler = llvm::sys::findProgramByName(name);
  if (!compiler)
    return llvm::createStringError(
        "the emulated GPU needs a C++ compiler, but there is no " + name +
        "; install one or set CXX");
  // -Og: compiling takes longer than most runs, and this 60 % of the time of
  // -O1. -ffp-contract=off: the bits do not depend on the compiler.
  const llvm::StringRef arguments[] = {
      "-std=c++20", "-Og", "-ffp-contract=off", "-fPIC", "-shared", "-w"};
  auto output =
      runCompiler({*compiler, "kernels.cpp", "kernels.so", arguments}, text);
  if (!output)
    return output.takeError();
  return std::move(output->bytes);
}

} // namespace tessera::cuda
