// How files store a tensor of the state. A name with a '*' is a stack, such as
// "mlp.experts.*.up_proj.weight" [experts, out, in]: files have one tensor for
// each index of its first dimension, with the index instead of the star, such
// as "mlp.experts.3.up_proj.weight" [out, in]. All other tensors are stored
// under their own names.
#pragma once
#include "runtime/weights/ModelState.h"

namespace tessera {

/// One tensor of a file: bytes [offset, offset + size) of a tensor of the
/// state.
struct StatePart {
  std::string name;
  std::vector<uint64_t> shape;
  uint64_t offset;
  uint64_t size;
};

/// In the order of their bytes; one unless the tensor is a stack. Values and
/// scales of a quantized stack [experts × micropanels, …] have one for each
/// matrix [micropanels, …].
std::vector<StatePart> partsOf(const StateTensor &tensor);

/// Values or scales of quantized weights, as those of each matrix that files
/// have; one unless it is a stack with a star in its name.
std::vector<StateTensor> matricesOf(const StateTensor &quantized);

} // namespace tessera
