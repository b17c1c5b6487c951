// Packs bf16 weights into micropanels, in the layout of
// runtime/support/QuantizedLayout.h.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/weights/ModelState.h"

#include <span>

namespace tessera {

/// Rows of at most 16 × `layout.columns` bf16, consecutive, to `layout.words()`
/// × 16 words; missing rows become zeros.
void packMicropanel(const QuantizedLayout &layout,
                    std::span<const uint16_t> rows, std::span<uint32_t> words);

/// A file's matrix that checkQuantizable (QuantizeTensor.h) has passed, rounded
/// to bf16 if necessary: on all processors, a micropanel at a time. A
/// transposed one is read into memory.
Status packMicropanels(ModelState &model, const StateTensor &values,
                       const SafetensorsFile &file,
                       const SafetensorsEntry &entry);

} // namespace tessera
