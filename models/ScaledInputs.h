// Finds linear layers that share an input, and the parameters that produce it,
// so that scales of its channels can be folded into both without changing the
// model's results.
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
  std::string measured; ///< the module whose sums @calibrate returns
  std::vector<std::string> readers; ///< parameters [out, channels]
  std::vector<std::string> before;
  bool isNorm = false;
  int64_t elements = 0; ///< of `before`
  /// [channels]: the element that produces each channel. Heads that share keys
  /// and values share elements.
  std::vector<int64_t> sources;
};

/// All such inputs, from the first layer to the last: the input of queries,
/// keys and values (from a norm), of the output projection (from values), of
/// gate and up (from a norm), and of down (a product with the output of up).
/// Errors: a family with [in, out] matrices, an encoder, or a model with
/// experts.
StatusOr<std::vector<InputOfLinears>> scaledInputs(const ModelSpec &spec);

} // namespace tessera::models
