// Writing what a compilation makes.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace tessera {

/// Writes the pieces one after another to `path`, "-" for stdout. A regular
/// file is written aside and renamed, so that it is there whole or not at all.
/// Errors name the path and the reason.
llvm::Error writeFile(llvm::StringRef path,
                      llvm::ArrayRef<llvm::StringRef> pieces,
                      bool executable = false);

/// The error that writeFile() would end with if nothing can be written to
/// `path`, for those that work long before they write.
llvm::Error checkWritable(llvm::StringRef path);

} // namespace tessera
