#include "compiler/api/LocalTargets.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "llvm/ADT/StringRef.h"

using namespace tessera;

std::vector<std::string> tessera::localTargets(std::string_view device) {
  llvm::StringRef name(device);
  if (name.consume_front("cuda-emu"))
    return {name.consume_front(":") ? ("cuda:" + name).str() : "cuda:sm_80"};
  if (name.starts_with("cuda"))
    return {"cuda:sm_80", "cuda:sm_90a"};
  if (name.starts_with("cpu:"))
    return {name.str()};
  std::string native = cpu::nativeTarget();
  return {native.empty() ? "cpu" : native};
}
