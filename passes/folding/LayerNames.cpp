#include "passes/folding/LayerNames.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

std::optional<LayerName> LayerName::parse(StringRef name) {
  constexpr size_t kMostDigits = 18; // of what 64 bits hold
  const char *end = name.end();
  for (const char *at = name.begin();; ++at) {
    const char *begin = at;
    int64_t layer = 0;
    for (; at < end && llvm::isDigit(*at); ++at)
      if (size_t(at - begin) < kMostDigits)
        layer = layer * 10 + (*at - '0');
    size_t digits = at - begin;
    if (digits > 0 && digits <= kMostDigits && (at == end || *at == '.'))
      return LayerName{name.take_front(begin - name.begin()),
                       StringRef(at, end - at), layer};
    while (at < end && *at != '.')
      ++at;
    if (at == end)
      return std::nullopt;
  }
}

std::string LayerName::withLayer(int64_t number) const {
  return (before + std::to_string(number) + after).str();
}

Location folding::movedBy(Location location, int64_t distance) {
  auto name = dyn_cast<NameLoc>(location);
  if (!name)
    return location;
  Location child = movedBy(name.getChildLoc(), distance);
  std::optional<LayerName> layer = LayerName::parse(name.getName());
  if (!layer && child == name.getChildLoc())
    return location;
  StringAttr moved = name.getName();
  int64_t number;
  if (layer && !__builtin_add_overflow(layer->layer, distance, &number))
    moved = StringAttr::get(location.getContext(), layer->withLayer(number));
  return NameLoc::get(moved, child);
}
