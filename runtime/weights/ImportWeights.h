// Loads a Hugging Face checkpoint into a model.
#pragma once
#include "runtime/data/WeightFiles.h"
#include "runtime/weights/ModelState.h"
#include "runtime/weights/WeightFactors.h"

namespace tessera {

struct ImportReport {
  uint64_t loaded = 0;
  std::vector<std::string> unexpected; ///< in the file, not in the model
  /// Of the model, not in the file: a scoring head that is to be trained.
  std::vector<std::string> initial;
};

/// Copies the parameters of a Hugging Face checkpoint (a .safetensors file, or
/// a directory with model.safetensors or its index, or a GGUF file that was
/// opened) into the model, by name; a
/// leading "transformer.", "model." or "bert." may be there on either side, and
/// BERT's LayerNorm may have gamma and beta. f16, bf16, f32 and f64, and 8-bit
/// floats with scales as bf16 (runtime/data/Float8Weights.h), convert to the
/// model's fp32, bf16 or fp64, and to integers or 8-bit floats with scales if
/// the model has quantized weights (QuantizeTensor.h); those that a checkpoint
/// has in the same form are kept (PackedWeights.h, formats/). The
/// checkpoint must have every parameter of the model with its shape, but for
/// the factors of adapters and a scoring head: an error lists those that are
/// missing, and the model is then unchanged. Tensors that `factors` names are
/// multiplied by theirs before they are rounded.
StatusOr<ImportReport> importWeights(const WeightFiles &weights,
                                     ModelState &model,
                                     const WeightFactors &factors = {});

/// The same, and every tensor of the checkpoint must be one of the model's,
/// redundant, or of multi-token prediction, and a scoring head must be there.
Status importAllWeights(const WeightFiles &weights, ModelState &model,
                        const WeightFactors &factors = {});

} // namespace tessera
