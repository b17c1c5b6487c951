#include "compiler/target/cuda/DeviceFiles.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

namespace tessera::cuda {

namespace {
struct EmbeddedFile {
  const char *path, *text;
};
#include "compiler/target/cuda/DeviceFiles.inc"
} // namespace

llvm::Error writeDeviceFiles(llvm::StringRef directory) {
  for (const EmbeddedFile &file : kDeviceFiles) {
    llvm::SmallString<128> path(directory);
    llvm::sys::path::append(path, file.path);
    std::error_code error =
        llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path));
    if (!error) {
      llvm::raw_fd_ostream out(path, error);
      if (!error) {
        out << file.text;
        out.flush();
        error = out.error();
        out.clear_error();
      }
    }
    if (error)
      return llvm::createStringError(error, "%s: cannot be written: %s",
                                     path.c_str(), error.message().c_str());
  }
  return llvm::Error::success();
}

} // namespace tessera::cuda
