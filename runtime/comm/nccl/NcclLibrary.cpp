#include "runtime/comm/nccl/NcclLibrary.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

namespace tessera::comm::nccl {
namespace {

constexpr const char *kLibrary = "libnccl.so.2";
constexpr const char *kVariable = "TESSERA_LIBNCCL";
/// Whether a graph's collectives may be under way at the same time as others.
/// Ours never are: a process has one stream for them. With it NCCL waits for
/// events, which a loop of a graph cannot (runtime/hal/cuda/GraphLoops.h). NCCL
/// reads it when a communicator is made.
constexpr const char *kMixing = "NCCL_GRAPH_MIXING_SUPPORT";
/// NCCL 2.13, the first that explains its last error; as NCCL counts.
constexpr int kOldest = 21300;

} // namespace

StatusOr<std::shared_ptr<const Library>> Library::load() {
  const char *named = std::getenv(kVariable);
  const std::string path = named && *named ? named : kLibrary;
  ::setenv(kMixing, "0", /*overwrite=*/0);
  // Never unloaded: it keeps threads of its own.
  void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *cause = ::dlerror();
    return Status::error("cannot load NCCL, by which GPUs speak: {}; install "
                         "NVIDIA's libnccl2, or name the library in {}",
                         cause ? cause : path, kVariable);
  }
  std::shared_ptr<Library> library(new Library);
  const auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        ::dlsym(handle, name));
    if (function)
      return Status::success();
    return Status::error("the library {} has no function {}: install NCCL 2.13 "
                         "or later, or name it in {}",
                         path, name, kVariable);
  };
  TESSERA_RETURN_IF_ERROR(find(library->errorText, "ncclGetErrorString"));
  TESSERA_RETURN_IF_ERROR(find(library->lastError, "ncclGetLastError"));
#define TESSERA_NCCL_FIND(member, symbol, parameters)                          \
  TESSERA_RETURN_IF_ERROR(find(library->member, #symbol));
  TESSERA_NCCL_FUNCTIONS(TESSERA_NCCL_FIND)
#undef TESSERA_NCCL_FIND
  int version = 0;
  TESSERA_RETURN_IF_ERROR(
      library->check(library->version(&version), "ncclGetVersion"));
  if (version < kOldest)
    return Status::error("the library {} is NCCL {}.{}, but 2.13 or later is "
                         "needed",
                         path, version / 10000, version / 100 % 100);
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::check(Result result, const char *what,
                      Communicator communicator) const {
  if (result == kSuccess)
    return Status::success();
  const char *text = errorText(result);
  const char *last = communicator ? lastError(communicator) : nullptr;
  std::string line =
      fmt::format("{}: NCCL says {}", what, text ? text : "an unknown error");
  if (last && *last)
    line += fmt::format(" ({})", last);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return Status::error("{}", line);
}

} // namespace tessera::comm::nccl
