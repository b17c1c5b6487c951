// NVIDIA's nvdisasm, which users may have or not: finding it and running it.
#pragma once
#include <string>
#include <string_view>

#include "runtime/support/Status.h"

namespace tessera::sass {

/// How to get it, for messages.
inline constexpr std::string_view kHowToGetDisassembler =
    "SASS needs nvdisasm: pip install nvidia-cuda-nvdisasm, and set "
    "TESSERA_NVDISASM to its path";

/// $TESSERA_NVDISASM, nvdisasm on the path, in $VIRTUAL_ENV (where pip puts
/// it), or in $CUDA_HOME or /usr/local/cuda; empty: there is none.
std::string findDisassembler();

/// The text of a cubin's code, with encodings. `disassembler` is its path.
StatusOr<std::string> disassemble(const std::string &disassembler,
                                  std::string_view cubin);

} // namespace tessera::sass
