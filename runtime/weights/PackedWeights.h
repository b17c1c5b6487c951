// Quantized weights in files, as compressed-tensors' format "pack-quantized"
// has them (github.com/vllm-project/compressed-tensors): of a linear layer
// X.weight [out, in]
//
//   X.weight_packed  I32 [out, in × bits / 32]  q + 2^(bits - 1), first lowest
//   X.weight_scale   F16 or BF16 [out, in / group]
//   X.weight_shape   I64 [2]
//   X.weight_zero_point  I32 [out × bits / 32, in / group], as q, where
//                                 weights are not symmetric
//
// and in config.json a quantization_config that says bits and group. Of e4m3,
// as its format "float-quantized" with groups has them,
//
//   X.weight         F8_E4M3 [out, in]
//   X.weight_scale   F16 or BF16 [out, in / group]
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/weights/ModelState.h"
#include "runtime/weights/WeightFactors.h"

#include <functional>
#include <map>

namespace tessera {

/// Finds a tensor of a checkpoint by its name; nothing where it has none.
using FindTensor = std::function<std::optional<SafetensorsModel::Location>(
    const std::string &name)>;

struct PackedFormat;

/// The tensors of a packed matrix.
struct PackedMatrix {
  SafetensorsModel::Location packed, scale;
  /// Where the part's layout has zero points.
  std::optional<SafetensorsModel::Location> zeros = {};
  /// Of float8: rows and columns with one scale.
  int64_t blockRows = 1, blockColumns = 1;
  /// Which tensors they are, and in which order (formats/PackedFormats.h); set
  /// by findPacked.
  const PackedFormat *format = nullptr;
};

/// Those of `part`, if the checkpoint has its matrix packed in a format of
/// formats/PackedFormats.h. Errors: another
/// shape, type, number of bits or group than the part's.
StatusOr<std::optional<PackedMatrix>> findPacked(const QuantizedPart &part,
                                                 const FindTensor &find);

/// Brings a packed matrix into micropanels. Scales that f16 does not hold are
/// errors.
Status loadPacked(ModelState &model, const StateTensor &values,
                  const StateTensor &scales, const PackedMatrix &matrix);

/// Whether writePacked takes a matrix of this name and layout: columns in whole
/// groups, and not kept as [in, out] by the checkpoint (`transposed`).
Status checkPackable(const std::string &name, const QuantizedLayout &layout,
                     bool transposed);

/// Writes the Hugging Face directory `from` to `to`, a new directory that
/// appears whole or not at all, packing the matrices that `model` (with its
/// program and weights loaded) keeps quantized, except heads, which are
/// quantized whenever they are read. `factors` are those with which the model's
/// weights were read. Errors: a matrix that the checkpoint stores as [in, out];
/// one whose columns are not a multiple of the group; one that the checkpoint
/// lacks.
Status writePacked(const std::string &from, const std::string &to,
                   ModelState &model, const WeightFactors &factors = {});

} // namespace tessera
