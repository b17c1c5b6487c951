// What `tessera quantize` was asked for, checked before the long work.
#pragma once
#include "compiler/api/QuantizeModel.h"

namespace tessera {

/// Reads the files of `settings`, whose place may be the hub's name of a model,
/// and quantizes it. Errors of options and files come before the weights are
/// read, and say what to change.
Status quantize(QuantizeSettings settings);

} // namespace tessera
