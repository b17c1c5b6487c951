// Quantized weights in files, as AutoAWQ's version "gemm" has them: of a linear
// layer X.weight [out, in]
//
//   X.qweight  I32 [in, out / 8]          q + 8 of eight rows
//   X.qzeros   I32 [in / group, out / 8]  zero points + 8, of the same rows
//   X.scales   F16 [in / group, out]
//
// The rows of a word are, from the lowest bits, 0, 2, 4, 6, 1, 3, 5, 7
// (github.com/casper-hansen/AutoAWQ, awq/modules/linear/gemm.py).
#pragma once
#include "runtime/weights/PackedWeights.h"

namespace tessera {

/// As findPacked and loadPacked (PackedWeights.h), of such matrices, which
/// differ from GPTQ's of the same names in the shape of qweight.
StatusOr<std::optional<PackedMatrix>> findAwq(const QuantizedPart &part,
                                              const FindTensor &find);
Status loadAwq(ModelState &model, const StateTensor &values,
               const StateTensor &scales, const PackedMatrix &matrix);

} // namespace tessera
