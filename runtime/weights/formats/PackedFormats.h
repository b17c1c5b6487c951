// The formats of quantized weights in checkpoints. Each is one file of this
// folder, which says at its beginning what the tensors of a matrix are, and a
// constant in the list below.
#pragma once
#include "runtime/weights/PackedWeights.h"

namespace tessera {

/// How matrices of one format are found and read.
struct PackedFormat {
  /// The tensors of `part`; nothing if the checkpoint has it in another format.
  /// Errors: another shape, type, number of bits or group than the part's.
  StatusOr<std::optional<PackedMatrix>> (*find)(const QuantizedPart &part,
                                                const FindTensor &find);
  /// As loadPacked (PackedWeights.h), of what `find` found.
  Status (*load)(ModelState &model, const StateTensor &values,
                 const StateTensor &scales, const PackedMatrix &matrix);
  bool floats = false; ///< for layouts of floats, and no others
  /// Rows are blocks of a file: also for super-blocks and mxfp4, and for
  /// matrices that the checkpoint presents as [columns, rows].
  bool inBlocks = false;
};

extern const PackedFormat kCompressedTensors, kAwq, kGptq, kFloat8, kGguf,
    kMxfp4;

/// In the order in which they are asked for a matrix.
inline constexpr const PackedFormat *kPackedFormats[] = {
    &kCompressedTensors, &kAwq, &kGptq, &kFloat8, &kGguf, &kMxfp4};

} // namespace tessera
