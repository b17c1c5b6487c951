#include "runtime/recipe/BaseLayout.h"

namespace tessera::recipe {

std::optional<QuantizedLayout> baseLayout(const Recipe &recipe) {
  const AdapterBase base = recipe.adapter.base;
  if (!isQuantized(base))
    return std::nullopt;
  QuantizedLayout layout;
  layout.bits = base == AdapterBase::Nf4 || base == AdapterBase::Int4 ? 4 : 8;
  layout.floats = base == AdapterBase::Nf4 || base == AdapterBase::Fp8;
  layout.group = base == AdapterBase::Nf4 ? QuantizedLayout::kNf4Group
                                          : recipe.inference.group;
  layout.zeros = !layout.floats && recipe.inference.zeros == ZeroPoints::Groups;
  return layout;
}

Quant quantOf(AdapterBase base) {
  switch (base) {
  case AdapterBase::Int8:
    return Quant::Int8;
  case AdapterBase::Int4:
    return Quant::Int4;
  case AdapterBase::Fp8:
    return Quant::Fp8;
  default:
    return Quant::None;
  }
}

} // namespace tessera::recipe
