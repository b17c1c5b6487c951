// Links objects to one ELF shared object, with lld as a library.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::cpu {

/// Links relocatable objects (their bytes) into a shared object without
/// dependencies: an undefined symbol is an error, which names it. Thread-safe;
/// a process runs one link at a time.
llvm::Expected<std::string>
linkSharedObject(llvm::ArrayRef<llvm::StringRef> objects);

} // namespace tessera::cpu
