// Weights of bf16 in micropanels, as runtime/support/QuantizedLayout.h lays
// them.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/weights/ModelState.h"

#include <span>

namespace tessera {

/// Rows of at most 16 × `layout.columns` bf16, one after another, to
/// `layout.words()` × 16 words; what is not there becomes zeros.
void packMicropanel(const QuantizedLayout &layout,
                    std::span<const uint16_t> rows, std::span<uint32_t> words);

/// A file's matrix that checkQuantizable (QuantizeTensor.h) has passed, rounded
/// to bf16 if it is something else: on all processors, a micropanel at a time;
/// a transposed one is in memory meanwhile.
Status packMicropanels(ModelState &model, const StateTensor &values,
                       const SafetensorsFile &file,
                       const SafetensorsEntry &entry);

} // namespace tessera
