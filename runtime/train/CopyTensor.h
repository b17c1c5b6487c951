// From a file of tensors into a model.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/train/TrainModel.h"

namespace tessera {

/// Whether elements become those of the model: the same type, or f16, bf16, f32
/// and f64 as f32 or bf16 (rounded to nearest even).
bool converts(SafetensorsType from, SafetensorsType to);

/// Piece by piece. The shape is the tensor's and the type converts.
Status copyTensor(TrainModel &model, const StateTensor &tensor,
                  const SafetensorsFile &file, const SafetensorsEntry &entry);

} // namespace tessera
