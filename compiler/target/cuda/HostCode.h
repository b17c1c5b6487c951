// Printed kernels for the emulated GPU: the same source, compiled by the host's
// C++ compiler against the emulated side of the device library.
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::cuda {

/// A shared object in which kernel NAME is the symbol NAME_emulated of type
/// emulated::KernelEntry. Uses $CXX or c++, which must know C++20. An error
/// holds the first diagnostic of that compiler.
llvm::Expected<std::string> compileForHost(llvm::StringRef text);

} // namespace tessera::cuda
