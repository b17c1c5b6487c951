#include "passes/folding/LayerNames.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

std::optional<LayerName> LayerName::parse(StringRef name) {
  for (size_t begin = 0; begin < name.size();) {
    size_t end = begin;
    bool isNumber = true;
    for (; end < name.size() && name[end] != '.'; ++end)
      isNumber &= llvm::isDigit(name[end]);
    StringRef part = name.slice(begin, end);
    int64_t layer = 0;
    if (isNumber && !part.empty() && !part.getAsInteger(10, layer))
      return LayerName{name.take_front(begin), name.drop_front(end), layer};
    begin = end + 1;
  }
  return std::nullopt;
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
