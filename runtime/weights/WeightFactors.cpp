#include "runtime/weights/WeightFactors.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/CopyTensor.h"

#include <cstring>

namespace tessera {

const TensorFactors *factorsOf(const WeightFactors &factors,
                               const std::string &name) {
  auto found = factors.find(name);
  return found == factors.end() ? nullptr : &found->second;
}

float roundedTo(SafetensorsType type, float value) {
  if (type == SafetensorsType::bf16)
    return bf16ToFloat(floatToBf16(value));
  if (type == SafetensorsType::f16)
    return f16ToFloat(floatToF16(value));
  return value;
}

StatusOr<std::vector<float>>
readScaledRows(const SafetensorsModel::Location &from,
               const TensorFactors &factors, int64_t first, int64_t count) {
  const SafetensorsEntry &entry = *from.entry;
  const uint64_t columns = entry.shape.size() == 2 ? entry.shape[1] : 1,
                 size = safetensorsBits(entry.type) / 8, row = columns * size;
  std::vector<std::byte> bytes(count * row);
  TESSERA_RETURN_IF_ERROR(from.file->read(entry, first * row, bytes));
  std::vector<float> values(count * columns);
  toFloats(entry.type, bytes.data(), values.size(), values.data());
  for (int64_t n = 0; n < count; ++n) {
    float *to = &values[n * columns];
    const float ofRow = factors.rows.empty() ? 1 : factors.rows[first + n];
    for (uint64_t k = 0; k < columns; ++k) {
      const float ofColumn = factors.columns.empty() ? 1 : factors.columns[k];
      to[k] = (to[k] + factors.offset) * (ofRow * ofColumn) - factors.offset;
    }
  }
  return values;
}

StatusOr<std::vector<std::byte>>
readScaled(const SafetensorsModel::Location &from,
           const TensorFactors &factors) {
  const SafetensorsType type = from.entry->type;
  auto values =
      readScaledRows(from, factors, 0, int64_t(from.entry->shape.at(0)));
  if (!values.ok())
    return values.status();
  const std::size_t size = safetensorsBits(type) / 8;
  std::vector<std::byte> bytes(values->size() * size);
  for (std::size_t i = 0; i < values->size(); ++i) {
    const float value = (*values)[i];
    std::byte *to = bytes.data() + i * size;
    if (type == SafetensorsType::f32) {
      std::memcpy(to, &value, size);
    } else if (type == SafetensorsType::f64) {
      const double wide = value;
      std::memcpy(to, &wide, size);
    } else {
      const uint16_t half = type == SafetensorsType::bf16 ? floatToBf16(value)
                                                          : floatToF16(value);
      std::memcpy(to, &half, size);
    }
  }
  return bytes;
}

} // namespace tessera
