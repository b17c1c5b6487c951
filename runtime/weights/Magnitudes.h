// Norms of the rows of matrices, from which the magnitudes of an adapter begin
// (DoRA).
#pragma once
#include "runtime/weights/PackedWeights.h"

namespace tessera {

/// A matrix of the model in f32, [rows, columns] or `isTransposed`.
struct ModelMatrix {
  std::vector<float> values;
  uint64_t rows = 0, columns = 0;
  bool isTransposed = false;
};

/// The weight of the linear layer at `path` as the model stores it: floats in
/// rows, bf16 in micropanels, or quantized.
StatusOr<ModelMatrix> readMatrix(ModelState &model, const std::string &path);

/// Fills the norms of rows that the model has (kWeightNorm), of its weights as
/// it stores them; to be called after those are read. Magnitudes that the
/// checkpoint lacks begin as these norms; an error if it has factors of the
/// layer. `from` is the checkpoint's path, for errors; `find` finds its
/// tensors.
Status startMagnitudes(const std::string &from, ModelState &model,
                       const FindTensor &find);

} // namespace tessera
