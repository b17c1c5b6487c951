// The codes of an adapter's quantized base.
#pragma once
#include <optional>

#include "runtime/recipe/Recipe.h"
#include "runtime/support/QuantizedLayout.h"

namespace tessera::recipe {

/// The layout of the base's matrices but for their rows and columns; nothing
/// if adapter.base does not quantize them. Integers and e4m3 have the group
/// size and the zero points of the section `inference`, so that programs that
/// serve the adapter with the same keys have the same codes.
std::optional<QuantizedLayout> baseLayout(const Recipe &recipe);

/// inference.quant of a program with the same codes; None if there is none.
Quant quantOf(AdapterBase base);

} // namespace tessera::recipe
