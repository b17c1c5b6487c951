// Which linear layers share an input, and what makes it: where scales of
// channels can be folded without a change of what the model computes.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/support/Status.h"

#include <string>
#include <vector>

namespace tessera::models {

/// An input whose channels may be divided by scales: the elements of the
/// vector `before[0]`, a norm's weight, or the rows of the matrix there; others
/// of `before` are biases of the same elements.
struct InputOfLinears {
  std::string measured; ///< the module of which @calibrate has the sums
  std::vector<std::string> readers; ///< parameters [out, channels]
  std::vector<std::string> before;
  bool isNorm = false;
  int64_t elements = 0; ///< of `before`
  /// [channels]: the element that makes each. Heads that share keys and values
  /// share these.
  std::vector<int64_t> sources;
};

/// All of a model, from the first layer to the last: that of queries, keys and
/// values, which a norm makes; that of the output projection, which is made of
/// values; that of gate and up, which a norm makes; and that of down, a product
/// with what up gives. Errors: a family whose matrices are [in, out], that
/// generates nothing, or that has experts.
StatusOr<std::vector<InputOfLinears>> scaledInputs(const ModelSpec &spec);

} // namespace tessera::models
