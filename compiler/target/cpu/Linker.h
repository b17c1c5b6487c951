// Objects to one ELF shared object, by lld as a library.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::cpu {

/// Links relocatable objects (their bytes) into a shared object that depends on
/// nothing: an undefined symbol is an error, which names it. One link at a time
/// runs in a process; the call is safe from any thread.
llvm::Expected<std::string>
linkSharedObject(llvm::ArrayRef<llvm::StringRef> objects);

} // namespace tessera::cpu
