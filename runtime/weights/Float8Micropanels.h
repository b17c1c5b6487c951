// Weights that a checkpoint stores as e4m3 with scales
// (runtime/data/Float8Weights.h), copied bit for bit if the program expects
// e4m3.
#pragma once
#include "runtime/weights/PackedWeights.h"

namespace tessera {

/// As findPacked and loadPacked (PackedWeights.h). Empty if the weights are not
/// e4m3, if a group of the part's layout would need two scales, or if a scale
/// is subnormal or out of range in f16: the weights are then dequantized and
/// quantized again.
StatusOr<std::optional<PackedMatrix>> findFloat8(const QuantizedPart &part,
                                                 const FindTensor &find);
Status loadFloat8(ModelState &model, const StateTensor &values,
                  const StateTensor &scales, const PackedMatrix &matrix);

} // namespace tessera
