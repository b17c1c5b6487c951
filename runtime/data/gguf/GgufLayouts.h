// Which types of GGUF are layouts of kernels: their numbers are kept bit for
// bit.
#pragma once
#include "runtime/support/QuantizedLayout.h"

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// The layout that has the numbers of the type ("Q8_0"), without rows and
/// columns; nothing: they are dequantized. Q8_0 is d × q and Q4_0 d × (q - 8),
/// with d f16 of 32 columns; K-quants are super-blocks.
inline std::optional<QuantizedLayout> ggufLayout(std::string_view type) {
  if (type == "Q8_0")
    return QuantizedLayout{.bits = 8, .group = 32};
  if (type == "Q4_0")
    return QuantizedLayout{.bits = 4, .group = 32};
  if (type == "MXFP4")
    return QuantizedLayout{.bits = 4, .group = 32, .floats = true};
  for (int64_t bits : {4, 5, 6})
    if (type == "Q" + std::to_string(bits) + "_K")
      return QuantizedLayout{.bits = bits,
                             .group = QuantizedLayout::kSuperBlock,
                             .superBlocks = true};
  return std::nullopt;
}

} // namespace tessera
