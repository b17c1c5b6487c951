#include "runtime/weights/CopyTensor.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace tessera {
namespace {

/// Elements of a piece: few through a buffer, many in place.
constexpr uint64_t kFewElements = uint64_t(1) << 18;
constexpr uint64_t kManyElements = uint64_t(1) << 21;

/// One loop for each pair of types, so that each is one of vectors.
template <typename From, typename To, typename Convert>
void each(const std::byte *from, std::size_t count, To *to, Convert convert) {
  for (std::size_t i = 0; i < count; ++i) {
    From element;
    std::memcpy(&element, from + sizeof(From) * i, sizeof(From));
    to[i] = To(convert(element));
  }
}

/// `count` elements of `type` at `from` as fp32 or fp64; the type was checked.
template <typename Real>
void toReals(SafetensorsType type, const std::byte *from, std::size_t count,
             Real *to) {
  switch (type) {
  case SafetensorsType::bf16:
    return each<uint16_t>(from, count, to, bf16ToFloat);
  case SafetensorsType::f16:
    return each<uint16_t>(from, count, to, f16ToFloat);
  case SafetensorsType::f64:
    return each<double>(from, count, to, [](double x) { return x; });
  default:
    return each<float>(from, count, to, [](float x) { return x; });
  }
}

bool isFloat(SafetensorsType type) {
  return type == SafetensorsType::f32 || type == SafetensorsType::bf16 ||
         type == SafetensorsType::f16 || type == SafetensorsType::f64;
}

/// `count` elements of a type that converts to `toType`, which is another one.
void convert(SafetensorsType fromType, const std::byte *from, std::size_t count,
             SafetensorsType toType, std::byte *to) {
  if (toType == SafetensorsType::f64)
    return toReals(fromType, from, count, reinterpret_cast<double *>(to));
  if (toType == SafetensorsType::f32)
    return toReals(fromType, from, count, reinterpret_cast<float *>(to));
  constexpr std::size_t kFew = 1024;
  float floats[kFew];
  const std::size_t size = safetensorsBits(fromType) / 8;
  auto *halves = reinterpret_cast<uint16_t *>(to);
  for (std::size_t at = 0; at < count; at += kFew) {
    const std::size_t some = std::min(kFew, count - at);
    toReals(fromType, from + at * size, some, floats);
    std::transform(floats, floats + some, halves + at, floatToBf16);
  }
}

/// Elements [begin, begin + count) of a copy.
struct Piece {
  const TensorCopy *copy;
  uint64_t begin, count;

  uint64_t elementSize() const {
    return safetensorsBits(copy->tensor->type) / 8;
  }
  /// In the state's tensor.
  uint64_t offset() const { return copy->part.offset + begin * elementSize(); }
  uint64_t size() const { return count * elementSize(); }
};

void cut(const TensorCopy &copy, uint64_t most, std::vector<Piece> &pieces) {
  const uint64_t elements =
      copy.part.size / (safetensorsBits(copy.tensor->type) / 8);
  for (uint64_t at = 0; at < elements; at += most)
    pieces.push_back({&copy, at, std::min(most, elements - at)});
}

/// Reads the piece to `to`.
Status load(const Piece &piece, std::span<std::byte> to) {
  const auto &[file, entry] = piece.copy->from;
  const uint64_t size = safetensorsBits(entry->type) / 8;
  if (entry->type == piece.copy->tensor->type)
    return file->read(*entry, piece.begin * size, to);
  std::vector<std::byte> read;
  for (uint64_t at = 0; at < piece.count; at += kFewElements) {
    const uint64_t count = std::min(kFewElements, piece.count - at);
    read.resize(count * size);
    TESSERA_RETURN_IF_ERROR(
        file->read(*entry, (piece.begin + at) * size, read));
    convert(entry->type, read.data(), count, piece.copy->tensor->type,
            to.data() + at * piece.elementSize());
  }
  return Status::success();
}

/// Of a state that is not in memory.
Status copyByBuffer(ModelState &model, const TensorCopy &copy) {
  std::vector<Piece> pieces;
  cut(copy, kFewElements, pieces);
  std::vector<std::byte> buffer;
  for (const Piece &piece : pieces) {
    const uint64_t size = piece.elementSize();
    TESSERA_RETURN_IF_ERROR(model.forEachOwn(
        *copy.tensor, piece.offset(), piece.size(),
        [&](uint64_t offset, uint64_t bytes) -> Status {
          const Piece own{&copy, (offset - copy.part.offset) / size,
                          bytes / size};
          buffer.resize(bytes);
          TESSERA_RETURN_IF_ERROR(load(own, buffer));
          return model.writeState(*copy.tensor, offset, buffer);
        }));
  }
  return Status::success();
}

} // namespace

bool converts(SafetensorsType from, SafetensorsType to) {
  return from == to || (isFloat(from) && (to == SafetensorsType::f32 ||
                                          to == SafetensorsType::f64 ||
                                          to == SafetensorsType::bf16));
}

Status checkScaled(const SafetensorsFile &file, const SafetensorsEntry &entry) {
  if (entry.type != SafetensorsType::f8_e4m3)
    return Status::success();
  if (entry.shape.size() != 2)
    return Status::error("'{}' in '{}' is {} with {} dimensions, of which only "
                         "matrices are read; give it in bf16",
                         entry.name, file.path(), safetensorsName(entry.type),
                         entry.shape.size());
  return Status::error("'{}' in '{}' is {} and lacks its scales, '{}_scale' or "
                       "'{}_scale_inv'; give a checkpoint that has them",
                       entry.name, file.path(), safetensorsName(entry.type),
                       entry.name, entry.name);
}

void toFloats(SafetensorsType type, const std::byte *from, std::size_t count,
              float *to) {
  toReals(type, from, count, to);
}

void toBf16(SafetensorsType type, const std::byte *from, std::size_t count,
            uint16_t *to) {
  convert(type, from, count, SafetensorsType::bf16,
          reinterpret_cast<std::byte *>(to));
}

void convertElements(SafetensorsType fromType, std::span<const std::byte> from,
                     SafetensorsType toType, std::span<std::byte> to) {
  if (fromType == toType)
    std::ranges::copy(from, to.begin());
  else
    convert(fromType, from.data(),
            from.size() / (safetensorsBits(fromType) / 8), toType, to.data());
}

Status
inParallel(uint32_t count,
           const std::function<Status(uint32_t i, unsigned thread)> &task) {
  auto pool = hal::ThreadPool::create(hal::availableProcessors());
  if (!pool.ok())
    return pool.status();
  std::mutex mutex;
  std::atomic<uint32_t> failed = count; // the first that did
  Status problem;
  (*pool)->parallelFor(count,
                       [&](uint32_t begin, uint32_t end, unsigned thread) {
                         for (uint32_t i = begin; i < end && i < failed; ++i) {
                           Status status = task(i, thread);
                           if (status.ok())
                             continue;
                           std::lock_guard lock(mutex);
                           if (i < failed) {
                             failed = i;
                             problem = std::move(status);
                           }
                         }
                       });
  return problem;
}

Status copyTensors(ModelState &model, std::span<const TensorCopy> copies) {
  std::vector<Piece> pieces;
  for (const TensorCopy &copy : copies) {
    if (model.stateInMemory(*copy.tensor).empty())
      TESSERA_RETURN_IF_ERROR(copyByBuffer(model, copy));
    else
      cut(copy, kManyElements, pieces);
  }
  return inParallel(uint32_t(pieces.size()), [&](uint32_t i, unsigned) {
    const Piece &piece = pieces[i];
    return load(piece, model.stateInMemory(*piece.copy->tensor)
                           .subspan(piece.offset(), piece.size()));
  });
}

} // namespace tessera
