// Scales of channels that are folded into a checkpoint's weights as they are
// read: the producer of a layer's input is divided by them, and the weights
// that read it are multiplied.
#pragma once
#include "runtime/data/Safetensors.h"

#include <map>
#include <string>
#include <vector>

namespace tessera {

/// The factors of a tensor, applied in f32.
struct TensorFactors {
  std::vector<float> rows;    ///< [rows], or a vector's [elements]; empty: 1
  std::vector<float> columns; ///< [columns] of a matrix; empty: 1
  float offset = 0;           ///< the factors multiply offset + weight
};

/// By the model's parameter.
using WeightFactors = std::map<std::string, TensorFactors>;

/// Null where there are none.
const TensorFactors *factorsOf(const WeightFactors &factors,
                               const std::string &name);

/// `value` as a float of `type` has it, to the nearest.
float roundedTo(SafetensorsType type, float value);

/// Rows [first, first + count) of a float tensor of one or two dimensions,
/// times its factors.
StatusOr<std::vector<float>>
readScaledRows(const SafetensorsModel::Location &from,
               const TensorFactors &factors, int64_t first, int64_t count);

/// All of it, in the type that the file has.
StatusOr<std::vector<std::byte>>
readScaled(const SafetensorsModel::Location &from,
           const TensorFactors &factors);

} // namespace tessera
