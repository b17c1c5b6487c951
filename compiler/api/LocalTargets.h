// The targets of programs that are compiled where they run.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// For "cpu": the one CPU variant that the runtime would choose on this
/// processor (cpu::nativeTarget), so that only it is compiled; "cpu" (all
/// variants) on a processor that supports none. "cpu:avx2" as given. For GPUs,
/// CUDA targets: all of them if the GPU is not known yet.
std::vector<std::string> localTargets(std::string_view device);

} // namespace tessera
