// Runs an external compiler on generated code, in a temporary directory with
// the device library.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::cuda {

struct ExternalCompiler {
  std::string program; ///< an absolute path
  std::string source;  ///< file name of the source: "kernels.cu"
  std::string output;  ///< file name of the compiler's output
  llvm::ArrayRef<llvm::StringRef> arguments; ///< without -I, source and -o
  std::string kept = {}; ///< an intermediate file that nvcc keeps
};

struct CompilerOutput {
  std::string bytes; ///< of the output file
  std::string log;   ///< what it printed
  std::string kept;  ///< bytes of that file
};

/// An error holds the compiler's first diagnostic and the line of `text` that
/// it refers to.
llvm::Expected<CompilerOutput> runCompiler(const ExternalCompiler &compiler,
                                           llvm::StringRef text);

} // namespace tessera::cuda
