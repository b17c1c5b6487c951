// The device library's own files, for compilers that are run on generated text.
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace tessera::cuda {

/// Writes runtime/device below `directory`, which becomes an include path.
llvm::Error writeDeviceFiles(llvm::StringRef directory);

} // namespace tessera::cuda
