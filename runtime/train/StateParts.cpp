#include "runtime/train/StateParts.h"

namespace tessera {

std::vector<StatePart> partsOf(const StateTensor &tensor) {
  std::size_t star = tensor.name.find('*');
  if (star == tensor.name.npos || tensor.shape.empty() || tensor.shape[0] == 0)
    return {{tensor.name, tensor.shape, 0, tensor.size}};
  uint64_t count = tensor.shape[0], size = tensor.size / count;
  std::vector<StatePart> parts;
  for (uint64_t i = 0; i < count; ++i)
    parts.push_back({fmt::format("{}{}{}", tensor.name.substr(0, star), i,
                                 tensor.name.substr(star + 1)),
                     {tensor.shape.begin() + 1, tensor.shape.end()},
                     i * size,
                     size});
  return parts;
}

} // namespace tessera
