// From a file of tensors into a model.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/train/StateParts.h"

namespace tessera {

/// Whether elements become those of the model: the same type, or f16, bf16, f32
/// and f64 as f32, bf16 (rounded to nearest even) or f64.
bool converts(SafetensorsType from, SafetensorsType to);

/// `count` elements of a float type as f32.
void toFloats(SafetensorsType type, const std::byte *from, std::size_t count,
              float *to);

/// Piece by piece, into `part` of the tensor. The shape is the part's and the
/// type converts.
Status copyTensor(TrainModel &model, const StateTensor &tensor,
                  const StatePart &part, const SafetensorsFile &file,
                  const SafetensorsEntry &entry);

} // namespace tessera
