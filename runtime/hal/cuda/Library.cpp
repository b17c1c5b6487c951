#include "runtime/hal/cuda/Library.h"

#include <cstdlib>
#include <dlfcn.h>

namespace tessera::hal::cuda {
namespace {

constexpr const char *kVariable = "TESSERA_LIBCUBLASLT";

void *openLibrary(std::string &path) {
  if (const char *named = std::getenv(kVariable); named && *named) {
    path = named;
    return ::dlopen(named, RTLD_NOW | RTLD_LOCAL);
  }
  for (const char *known : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    path = known;
    if (void *library = ::dlopen(known, RTLD_NOW | RTLD_LOCAL))
      return library;
  }
  return nullptr;
}

/// "cuBLASLt 13.1.0" of 130100; versions before 13 count by other powers.
std::string nameOf(std::size_t version) {
  if (version < 100000)
    return fmt::format("cuBLASLt {}.{}.{}", version / 1000,
                       version % 1000 / 100, version % 100);
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000,
                     version % 10000 / 100, version % 100);
}

} // namespace

Status Library::check(LtStatus status, const char *function) const {
  if (status == 0)
    return Status::success();
  const char *text = statusText(status);
  return Status::error("{}: {} ({})", function, text ? text : "error", status);
}

Status Library::findFunctions(void *library, const std::string &path) {
  const auto find = [&](auto &function, const char *symbol) {
    void *address = ::dlsym(library, symbol);
    function = reinterpret_cast<std::decay_t<decltype(function)>>(address);
    return address ? Status::success()
                   : Status::error("{} has no function {}", path, symbol);
  };
  std::size_t (*version)() = nullptr;
  TESSERA_RETURN_IF_ERROR(find(version, "cublasLtGetVersion"));
  TESSERA_RETURN_IF_ERROR(find(statusText, "cublasLtGetStatusString"));
#define TESSERA_CUBLASLT_FIND(member, symbol, parameters)                      \
  TESSERA_RETURN_IF_ERROR(find(member, #symbol));
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_FIND)
#undef TESSERA_CUBLASLT_FIND
  label = nameOf(version());
  return Status::success();
}

StatusOr<std::shared_ptr<Library>>
Library::load(const std::shared_ptr<Gpu> &gpu) {
  // Never unloaded: it keeps state of its own in the context.
  std::string path;
  void *opened = openLibrary(path);
  if (!opened) {
    const char *cause = ::dlerror();
    return Status::error("{}", cause ? cause : path);
  }
  std::shared_ptr<Library> library(new Library(gpu));
  TESSERA_RETURN_IF_ERROR(library->findFunctions(opened, path));
  TESSERA_RETURN_IF_ERROR(gpu->enter([&] {
    return library->check(library->create(&library->handle), "cublasLtCreate");
  }));
  library->workspaceSize = std::uint64_t(gpu->capability() < 90 ? 4 : 32) << 20;
  auto memory =
      gpu->allocate(library->workspaceSize, "the workspace of cuBLASLt");
  if (!memory.ok())
    return memory.status();
  library->workspace = memory.take();
  return library;
}

Library::~Library() {
  if (handle)
    (void)gpu->enter([&] {
      (void)destroy(handle);
      return Status::success();
    });
}

} // namespace tessera::hal::cuda
