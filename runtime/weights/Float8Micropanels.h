// Weights that a checkpoint has as e4m3 with scales (runtime/data/
// Float8Weights.h), kept as they are where a program wants e4m3.
#pragma once
#include "runtime/weights/PackedWeights.h"

namespace tessera {

/// As findPacked and loadPacked (PackedWeights.h). Nothing where the weights
/// are no such floats, a group of the part's layout would have two scales, or
/// f16 comes to a scale by no more than its subnormals, or not at all: then
/// what they stand for is rounded anew.
StatusOr<std::optional<PackedMatrix>> findFloat8(const QuantizedPart &part,
                                                 const FindTensor &find);
Status loadFloat8(ModelState &model, const StateTensor &values,
                  const StateTensor &scales, const PackedMatrix &matrix);

} // namespace tessera
