#include "runtime/hal/cuda/Driver.h"

#include <cstdlib>
#include <dlfcn.h>

namespace tessera::hal::cuda {
namespace {

/// CUDA 12.0, the first whose library has every function of Api.h under that
/// name and signature.
constexpr int kOldestDriver = 12000;

constexpr const char *kLibrary = "libcuda.so.1";
constexpr const char *kVariable = "TESSERA_LIBCUDA";

} // namespace

std::string versionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool isSticky(Result result) {
  switch (result) {
  case kEccUncorrectable:
  case kNvlinkUncorrectable:
  case kContained:
  case kIllegalAddress:
  case kLaunchTimeout:
  case kAssert:
  case kHardwareStackError:
  case kIllegalInstruction:
  case kMisalignedAddress:
  case kInvalidAddressSpace:
  case kInvalidPc:
  case kLaunchFailed:
  case kTensorMemoryLeak:
    return true;
  default:
    return false;
  }
}

std::string Driver::describe(Result result) const {
  const char *id = nullptr, *text = nullptr;
  if (errorName.result(result, &id) != kSuccess || !id)
    id = "unknown to the driver";
  if (errorText.result(result, &text) != kSuccess || !text)
    text = "error";
  std::string line = fmt::format("{} ({})", text, id);
  if (isSticky(result))
    line += "; the GPU takes no more calls from this process: start it again";
  return line;
}

Status Driver::findFunctions(void *library, const std::string &path) {
  const auto find = [&](auto &function) {
    void *address = ::dlsym(library, function.name);
    function.pointer = reinterpret_cast<decltype(function.pointer)>(address);
    if (address)
      return Status::success();
    return Status::error("the CUDA driver's library {} has no function {}: "
                         "update NVIDIA's driver",
                         path, function.name);
  };
  // These first, which explain what else may be missing.
  TESSERA_RETURN_IF_ERROR(find(errorName));
  TESSERA_RETURN_IF_ERROR(find(errorText));
  TESSERA_RETURN_IF_ERROR(find(version));
  TESSERA_RETURN_IF_ERROR(version(&supported));
  if (supported < kOldestDriver)
    return Status::error("the driver {} is for CUDA {}, but CUDA {} or later "
                         "is needed: update NVIDIA's driver",
                         path, versionText(supported),
                         versionText(kOldestDriver));
#define TESSERA_CUDA_FIND(member, symbol, parameters)                          \
  TESSERA_RETURN_IF_ERROR(find(member));
  TESSERA_CUDA_FUNCTIONS(TESSERA_CUDA_FIND)
  if (hasLoopsInGraphs()) {
    TESSERA_CUDA_LOOP_FUNCTIONS(TESSERA_CUDA_FIND)
  }
#undef TESSERA_CUDA_FIND
  return Status::success();
}

StatusOr<std::shared_ptr<const Driver>> Driver::load() {
  const char *named = std::getenv(kVariable);
  const std::string path = named && *named ? named : kLibrary;
  // Never unloaded: the driver keeps threads of its own.
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *cause = ::dlerror();
    return Status::error(
        "cannot load the CUDA driver: {}; it comes with NVIDIA's driver for "
        "the GPU: install that, name its library in {}, or use another device",
        cause ? cause : path, kVariable);
  }
  std::shared_ptr<Driver> driver(new Driver);
  TESSERA_RETURN_IF_ERROR(driver->findFunctions(library, path));
  const Result result = driver->initialize.result(0);
  if (result == kNoDevice)
    return Status::error("the CUDA driver finds no GPU ({}): check nvidia-smi "
                         "and CUDA_VISIBLE_DEVICES, or use another device",
                         driver->describe(result));
  if (result == kSystemDriverMismatch)
    return Status::error("{} does not match the loaded kernel module ({}): "
                         "restart the machine, or take the module's library",
                         path, driver->describe(result));
  if (result == kStubLibrary)
    return Status::error("{} is the toolkit's stub, for linking only: name the "
                         "driver's own library in {}",
                         path, kVariable);
  if (result != kSuccess)
    return Status::error("cannot start the CUDA driver: {}",
                         driver->initialize.check(result).message());
  return std::shared_ptr<const Driver>(std::move(driver));
}

} // namespace tessera::hal::cuda
