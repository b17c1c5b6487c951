// Brings blocks of a GGUF file into micropanels (QuantizedLayout.h): their
// integers and scales as they are, nothing is rounded.
#pragma once
#include "runtime/data/gguf/GgufTypes.h"
#include "runtime/support/QuantizedLayout.h"

#include <cstddef>
#include <optional>
#include <span>

namespace tessera {

/// The layout that holds a matrix [rows, columns] of the type as it is: of
/// Q4_K, Q5_K, Q6_K, Q8_0 and Q4_0. Nothing for other types, or if rows are not
/// whole blocks.
std::optional<QuantizedLayout> layoutOfBlocks(GgufType type, int64_t rows,
                                              int64_t columns);

/// One row, all of its blocks in order, to lane `lane` of a micropanel of that
/// layout: `layout.words()` × 16 words, and `layout.scaleRows()` × 16 scales,
/// in the form of MakeMicropanels.h (words are two each). `layout` may have
/// more rows.
void packBlocks(GgufType type, const QuantizedLayout &layout,
                std::span<const std::byte> blocks, int64_t lane,
                std::span<uint32_t> words, std::span<uint16_t> scales);

} // namespace tessera
