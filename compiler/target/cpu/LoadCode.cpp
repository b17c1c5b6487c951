#include "compiler/target/cpu/LoadCode.h"
#include "llvm/Support/raw_ostream.h"
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace tessera::cpu {

llvm::Expected<std::unique_ptr<LoadedCode>>
LoadedCode::load(llvm::StringRef elf) {
  int file = memfd_create("kernels", MFD_CLOEXEC);
  if (file < 0)
    return llvm::errorCodeToError(
        std::error_code(errno, std::generic_category()));
  {
    llvm::raw_fd_ostream stream(file, /*shouldClose=*/false);
    stream << elf;
  }
  // The loader knows libraries by these names, so that no other may have this
  // one while it is loaded: the file stays open.
  void *handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(),
                        RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    close(file);
    return llvm::createStringError(std::string("cannot load kernels: ") +
                                   dlerror());
  }
  return std::unique_ptr<LoadedCode>(new LoadedCode(handle, file));
}

LoadedCode::~LoadedCode() {
  dlclose(handle);
  close(file);
}

void *LoadedCode::address(const std::string &symbol) const {
  return dlsym(handle, symbol.c_str());
}

} // namespace tessera::cpu
