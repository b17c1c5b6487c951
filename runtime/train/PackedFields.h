// What formats of quantized weights share: how their tensors are checked.
// Internal to PackedWeights and GptqWeights.
#pragma once
#include "runtime/train/PackedWeights.h"

#include <initializer_list>

namespace tessera {

/// What turns our words into a file's, and back: of 8 bits there is 128 added,
/// which of 4 bits ours have, too.
inline uint32_t packedBias(const QuantizedLayout &layout) {
  return layout.bits == 8 ? 0x80808080u : 0u;
}

Status checkWholeGroups(const std::string &name, const QuantizedLayout &layout);
/// I32 of that shape.
Status checkPacked(const SafetensorsModel::Location &at,
                   std::initializer_list<uint64_t> shape,
                   const QuantizedLayout &layout);
/// Floats of that shape.
Status checkScales(const SafetensorsModel::Location &at,
                   std::initializer_list<uint64_t> shape,
                   const QuantizedLayout &layout);

/// `count` scales from a place in the tensor on, as f16; one that this does not
/// hold is an error.
StatusOr<std::vector<uint16_t>> readScales(const SafetensorsModel::Location &at,
                                           int64_t count, int64_t first = 0);

} // namespace tessera
