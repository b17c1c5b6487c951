#include "runtime/train/CopyTensor.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

constexpr uint64_t kPieceElements = uint64_t(1) << 18;

/// `count` elements of `type` at `from` as fp32 or fp64; the type was checked.
template <typename Real>
void toReals(SafetensorsType type, const std::byte *from, std::size_t count,
             Real *to) {
  for (std::size_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    float single = 0;
    double wide = 0;
    switch (type) {
    case SafetensorsType::bf16:
      std::memcpy(&half, from + 2 * i, 2);
      to[i] = bf16ToFloat(half);
      break;
    case SafetensorsType::f16:
      std::memcpy(&half, from + 2 * i, 2);
      to[i] = f16ToFloat(half);
      break;
    case SafetensorsType::f64:
      std::memcpy(&wide, from + 8 * i, 8);
      to[i] = Real(wide);
      break;
    default:
      std::memcpy(&single, from + 4 * i, 4);
      to[i] = Real(single);
    }
  }
}

bool isFloat(SafetensorsType type) {
  return type == SafetensorsType::f32 || type == SafetensorsType::bf16 ||
         type == SafetensorsType::f16 || type == SafetensorsType::f64;
}

} // namespace

bool converts(SafetensorsType from, SafetensorsType to) {
  return from == to || (isFloat(from) && (to == SafetensorsType::f32 ||
                                          to == SafetensorsType::f64 ||
                                          to == SafetensorsType::bf16));
}

void toFloats(SafetensorsType type, const std::byte *from, std::size_t count,
              float *to) {
  toReals(type, from, count, to);
}

Status copyTensor(TrainModel &model, const StateTensor &tensor,
                  const StatePart &part, const SafetensorsFile &file,
                  const SafetensorsEntry &entry) {
  uint64_t from = safetensorsBits(entry.type) / 8;
  uint64_t to = safetensorsBits(tensor.type) / 8;
  uint64_t elements = part.size / to;
  std::vector<std::byte> read;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<uint16_t> halves;
  for (uint64_t at = 0; at < elements; at += kPieceElements) {
    uint64_t count = std::min(kPieceElements, elements - at);
    read.resize(count * from);
    TESSERA_RETURN_IF_ERROR(file.read(entry, at * from, read));
    std::span<const std::byte> bytes = read;
    if (entry.type != tensor.type && tensor.type == SafetensorsType::f64) {
      doubles.resize(count);
      toReals(entry.type, read.data(), count, doubles.data());
      bytes = std::as_bytes(std::span(doubles));
    } else if (entry.type != tensor.type) {
      floats.resize(count);
      toReals(entry.type, read.data(), count, floats.data());
      bytes = std::as_bytes(std::span(floats));
    }
    if (entry.type != tensor.type && tensor.type == SafetensorsType::bf16) {
      halves.resize(count);
      std::transform(floats.begin(), floats.end(), halves.begin(), floatToBf16);
      bytes = std::as_bytes(std::span(halves));
    }
    TESSERA_RETURN_IF_ERROR(
        model.writeState(tensor, part.offset + at * to, bytes));
  }
  return Status::success();
}

} // namespace tessera
