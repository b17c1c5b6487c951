// Machine code for this processor, brought into the process.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <span>
#include <string>

namespace tessera::hal {

/// A shared object held in memory, unloaded at the end of its life.
class LoadedCode {
public:
  /// Checks that `elf` is a whole shared object for this machine, and loads it
  /// without touching a file system. `what` names it in errors.
  static StatusOr<LoadedCode> load(std::span<const std::byte> elf,
                                   std::string what);
  LoadedCode(LoadedCode &&other) noexcept;
  LoadedCode &operator=(LoadedCode &&) = delete;
  ~LoadedCode();

  /// The function of that name, of type `Function`; symbols of other libraries
  /// do not count.
  template <typename Function>
  StatusOr<Function *> function(const std::string &name) const {
    const StatusOr<void *> address = symbol(name);
    if (!address.ok())
      return address.status();
    return reinterpret_cast<Function *>(*address);
  }

private:
  LoadedCode() = default;
  StatusOr<void *> symbol(const std::string &name) const;

  std::string what;
  void *handle = nullptr;
  // Held open: the loader knows libraries by their path, and a second object
  // that got this descriptor's number would be taken for the first.
  int descriptor = -1;
};

} // namespace tessera::hal
