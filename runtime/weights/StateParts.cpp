#include "runtime/weights/StateParts.h"

namespace tessera {

/// With an entry's number in the place of the star.
static std::string numbered(const std::string &name, std::size_t star,
                            uint64_t i) {
  return fmt::format("{}{}{}", name.substr(0, star), i, name.substr(star + 1));
}

std::vector<StatePart> partsOf(const StateTensor &tensor) {
  std::size_t star = tensor.name.find('*');
  if (star == tensor.name.npos || tensor.shape.empty() || tensor.shape[0] == 0)
    return {{tensor.name, tensor.shape, 0, tensor.size}};
  // Of quantized matrices the first dimension is of all their micropanels.
  const bool isQuantized = tensor.quantized && tensor.quantized->stack > 0;
  uint64_t count =
      isQuantized ? uint64_t(tensor.quantized->stack) : tensor.shape[0];
  uint64_t size = tensor.size / count;
  std::vector<uint64_t> shape = tensor.shape;
  if (isQuantized)
    shape[0] /= count;
  else
    shape.erase(shape.begin());
  std::vector<StatePart> parts;
  for (uint64_t i = 0; i < count; ++i)
    parts.push_back({numbered(tensor.name, star, i), shape, i * size, size});
  return parts;
}

std::vector<StateTensor> matricesOf(const StateTensor &quantized) {
  const QuantizedPart &whole = *quantized.quantized;
  const int64_t count = whole.stack;
  const std::size_t star = whole.source.find('*');
  if (count == 0 || star == whole.source.npos)
    return {quantized};
  std::vector<StateTensor> matrices(std::size_t(count), quantized);
  for (int64_t i = 0; i < count; ++i) {
    QuantizedPart &part = *matrices[i].quantized;
    part.source = numbered(whole.source, star, uint64_t(i));
    part.layout.rows = whole.layout.rows / count;
    part.stack = 0;
    part.firstMicropanel = i * part.layout.micropanels();
  }
  return matrices;
}

} // namespace tessera
