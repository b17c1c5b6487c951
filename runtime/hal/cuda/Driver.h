// The CUDA driver's library, loaded while the program runs, and its errors as
// text.
#pragma once
#include "runtime/hal/cuda/Api.h"
#include "runtime/support/Status.h"

#include <memory>
#include <string>

namespace tessera::hal::cuda {

class Driver;

/// One function of the driver. A call's error names the function and what the
/// driver says: "cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
template <typename Signature> class Function;
template <typename... Args> class Function<Result(Args...)> {
public:
  Function(const Driver &driver, const char *name)
      : name(name), driver(driver) {}
  Status operator()(Args... args) const { return check(pointer(args...)); }
  /// For callers that tell results apart.
  Result result(Args... args) const { return pointer(args...); }
  Status check(Result result) const;

  const char *const name;
  Result (*pointer)(Args...) = nullptr;

private:
  const Driver &driver;
};

class Driver {
public:
  /// Loads libcuda.so.1, or what the environment variable TESSERA_LIBCUDA
  /// names, and initializes it. An error says which of these failed: the
  /// library, its version, a function, the GPUs' driver.
  static StatusOr<std::shared_ptr<const Driver>> load();
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;

  // NOLINTBEGIN(bugprone-macro-parentheses): declarations
#define TESSERA_CUDA_MEMBER(member, symbol, parameters)                        \
  Function<Result parameters> member{*this, #symbol};
  TESSERA_CUDA_FUNCTIONS(TESSERA_CUDA_MEMBER)
  TESSERA_CUDA_LOOP_FUNCTIONS(TESSERA_CUDA_MEMBER) // if hasLoopsInGraphs()
#undef TESSERA_CUDA_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)

  /// Of CUDA, as the driver counts: 13.0 is 13000.
  int cudaVersion() const { return supported; }
  bool hasLoopsInGraphs() const { return supported >= kLoopsInGraphs; }
  /// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"; after an error that ends the
  /// GPU's service to this process, also what to do.
  std::string describe(Result result) const;

private:
  Driver() = default;
  Status findFunctions(void *library, const std::string &path);

  int supported = 0;
};

/// "13.0" of 13000.
std::string versionText(int version);

/// Whether the driver refuses every later call of this process too.
bool isSticky(Result result);

template <typename... Args>
Status Function<Result(Args...)>::check(Result result) const {
  if (result == kSuccess)
    return Status::success();
  return Status::error("{}: {}", name, driver.describe(result));
}

} // namespace tessera::hal::cuda
