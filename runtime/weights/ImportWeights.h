// Starting from weights that others trained.
#pragma once
#include "runtime/weights/ModelState.h"
#include "runtime/weights/WeightFactors.h"

namespace tessera {

struct ImportReport {
  uint64_t loaded = 0;
  std::vector<std::string> unexpected; ///< in the file, not in the model
};

/// Copies the parameters of a Hugging Face checkpoint (a .safetensors file, or
/// a directory with model.safetensors or its index) into the model, by name; a
/// leading "transformer.", "model." or "bert." may be there on either side, and
/// BERT's LayerNorm may have gamma and beta. f16, bf16, f32 and f64, and 8-bit
/// floats with scales as bf16 (runtime/data/Float8Weights.h), convert to the
/// model's fp32, bf16 or fp64, and to integers or 8-bit floats with scales
/// where the model keeps quantized weights (QuantizeTensor.h); those that a
/// checkpoint has in the same form are kept (PackedWeights.h,
/// Float8Micropanels.h). Every parameter of the model must be there with its
/// shape: what is missing is an error that lists it, and the model is then
/// unchanged. Tensors that `factors` names are multiplied with theirs, before
/// they are rounded.
StatusOr<ImportReport> importWeights(const std::string &path, ModelState &model,
                                     const WeightFactors &factors = {});

/// The same, and every tensor must be one of the model's, or be known to follow
/// from some.
Status importAllWeights(const std::string &path, ModelState &model,
                        const WeightFactors &factors = {});

} // namespace tessera
