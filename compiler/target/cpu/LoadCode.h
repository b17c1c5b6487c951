// Runs compiled kernels inside the compiler's own process, for tests and
// benchmarks. Training executables use the runtime's device instead.
#pragma once
#include "llvm/Support/Error.h"
#include <memory>

namespace tessera::cpu {

/// The kernel ABI: buffers, dynamic sizes, first block, block past the last,
/// scratch of this thread (64-byte aligned).
using KernelEntry = void (*)(void *const *buffers, const int64_t *sizes,
                             int64_t blockBegin, int64_t blockEnd,
                             void *scratch);

/// A shared object loaded from memory; unloaded when destroyed.
class LoadedCode {
public:
  static llvm::Expected<std::unique_ptr<LoadedCode>> load(llvm::StringRef elf);
  ~LoadedCode();
  LoadedCode(const LoadedCode &) = delete;

  /// The kernel of this name, or null.
  KernelEntry find(const std::string &kernel) const {
    return reinterpret_cast<KernelEntry>(address(kernel));
  }
  /// The same for any symbol.
  void *address(const std::string &symbol) const;

private:
  LoadedCode(void *handle, int file) : handle(handle), file(file) {}
  void *handle;
  int file;
};

} // namespace tessera::cpu
