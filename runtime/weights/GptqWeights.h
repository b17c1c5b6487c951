// Quantized weights in files, as GPTQ's tools write them (AutoGPTQ, GPTQModel):
// of a linear layer X.weight [out, in]
//
//   X.qweight  I32 [in × bits / 32, out]     q, of a column the first lowest
//   X.scales   F16 or BF16 [in / group, out]
//   X.qzeros   I32 [in / group, out × bits / 32]  the zero point, or (in the
//                                                 first version) 1 less
//   X.g_idx    I32 [in]                      which group a column is in
//
// Supported if groups are consecutive columns (`"desc_act": false`). If the
// layout has no zero points (`"sym": true`), they must be the middle value.
// Otherwise they are of the first version, and 1 is added to whole words, with
// carries, which is how GPTQModel subtracts it. AutoGPTQ's kernels add it to
// each zero point, which differs where one was 0.
#pragma once
#include "runtime/weights/PackedWeights.h"

namespace tessera {

/// As findPacked and loadPacked (PackedWeights.h), of such matrices. Additional
/// errors: zero points that the layout does not have, groups in another order.
StatusOr<std::optional<PackedMatrix>> findGptq(const QuantizedPart &part,
                                               const FindTensor &find);
Status loadGptq(ModelState &model, const StateTensor &values,
                const StateTensor &scales, const PackedMatrix &matrix);

} // namespace tessera
