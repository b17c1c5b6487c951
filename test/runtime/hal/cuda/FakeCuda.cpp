#include "test/runtime/hal/cuda/FakeCuda.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace tessera::test {

FakeCuda &FakeCuda::get() {
  static FakeCuda fake;
  return fake;
}

template <typename Function>
static void find(void *library, const char *name, Function *&function) {
  function = reinterpret_cast<Function *>(::dlsym(library, name));
  if (function)
    return;
  std::fprintf(stderr, "%s\n", ::dlerror());
  std::abort();
}

FakeCuda::FakeCuda() {
  ::setenv("TESSERA_LIBCUDA", TESSERA_FAKE_CUDA, 1);
  ::setenv("TESSERA_LIBCUBLASLT", TESSERA_FAKE_CUDA, 1);
  void *library = ::dlopen(TESSERA_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  find(library, "tesseraFakeLeaks", leaksOf);
  find(library, "tesseraFakeMisuse", misuseOf);
  find(library, "tesseraFakeCalls", callsOf);
  find(library, "tesseraFakeReset", resetOf);
}

} // namespace tessera::test
