#include "test/support/HostBuffer.h"
#include "runtime/support/Floats.h"
#include <cmath>
#include <cstring>

namespace tessera::testing {

using interpreter::Tensor;

static constexpr size_t kGuard = 256;
static constexpr std::byte kGuardByte{0xa5};

int64_t storedBytes(mlir::Type element) {
  return std::max<int64_t>(element.getIntOrFloatBitWidth() / 8, 1);
}

HostBuffer::HostBuffer(mlir::RankedTensorType type)
    : elementType(type.getElementType()), count(type.getNumElements()),
      size(count * storedBytes(elementType)) {
  allocate();
  std::memset(start, 0xff, size);
}

HostBuffer::HostBuffer(mlir::RankedTensorType type, const Tensor &values)
    : HostBuffer(type) {
  for (int64_t i = 0; i < count; ++i)
    set(i, values.data[i]);
}

HostBuffer::HostBuffer(const HostBuffer &other)
    : elementType(other.elementType), count(other.count), size(other.size) {
  allocate();
  std::memcpy(start, other.start, size);
}

void HostBuffer::allocate() {
  memory.assign(size + 2 * kGuard + 64, kGuardByte);
  auto address = reinterpret_cast<uintptr_t>(memory.data()) + kGuard;
  start = reinterpret_cast<std::byte *>((address + 63) / 64 * 64);
}

bool HostBuffer::isIntact() const {
  for (const std::byte *byte = memory.data(); byte != start; ++byte)
    if (*byte != kGuardByte)
      return false;
  for (const std::byte *byte = start + size;
       byte != memory.data() + memory.size(); ++byte)
    if (*byte != kGuardByte)
      return false;
  return true;
}

template <typename T> static T read(const std::byte *from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T> static void write(std::byte *to, int64_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

double HostBuffer::get(int64_t i) const {
  if (elementType.isF64())
    return read<double>(start, i);
  if (elementType.isF32())
    return read<float>(start, i);
  if (elementType.isBF16())
    return bf16ToFloat(read<uint16_t>(start, i));
  if (elementType.isF16())
    return f16ToFloat(read<uint16_t>(start, i));
  if (elementType.isInteger(1) || elementType.isUnsignedInteger(8))
    return read<uint8_t>(start, i);
  switch (elementType.getIntOrFloatBitWidth()) {
  case 8:
    return read<int8_t>(start, i);
  case 16:
    return read<int16_t>(start, i);
  case 32:
    return read<int32_t>(start, i);
  default:
    return static_cast<double>(read<int64_t>(start, i));
  }
}

void HostBuffer::set(int64_t i, double value) {
  if (elementType.isF64())
    return write(start, i, value);
  if (elementType.isF32())
    return write(start, i, static_cast<float>(value));
  if (elementType.isBF16())
    return write(start, i, floatToBf16(static_cast<float>(value)));
  if (elementType.isF16())
    return write(start, i, floatToF16(static_cast<float>(value)));
  auto integer = static_cast<int64_t>(value);
  switch (storedBytes(elementType)) {
  case 1:
    return write(start, i, static_cast<uint8_t>(integer));
  case 2:
    return write(start, i, static_cast<uint16_t>(integer));
  case 4:
    return write(start, i, static_cast<uint32_t>(integer));
  default:
    return write(start, i, integer);
  }
}

Tensor HostBuffer::values(llvm::ArrayRef<int64_t> shape) const {
  Tensor tensor(shape);
  for (int64_t i = 0; i < count; ++i)
    tensor.data[i] = get(i);
  return tensor;
}

} // namespace tessera::testing
