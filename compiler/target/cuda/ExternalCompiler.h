// Runs a compiler that is not ours on generated text, in a directory of its own
// with the device library beside it.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::cuda {

struct ExternalCompiler {
  std::string program; ///< an absolute path
  std::string source;  ///< what the text is called: "kernels.cu"
  std::string output;  ///< what the compiler is told to write
  llvm::ArrayRef<llvm::StringRef> arguments; ///< but for -I, source and -o
  std::string kept = {}; ///< a file between the two that nvcc is to keep
};

struct CompilerOutput {
  std::string bytes; ///< of the output file
  std::string log;   ///< what it printed
  std::string kept;  ///< bytes of that file
};

/// An error holds the compiler's first diagnostic and the line of `text` that
/// it is about.
llvm::Expected<CompilerOutput> runCompiler(const ExternalCompiler &compiler,
                                           llvm::StringRef text);

} // namespace tessera::cuda
