// Copies tensors of a file into a model, converted to its types.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/weights/StateParts.h"

#include <functional>

namespace tessera {

/// Whether elements can be converted: the same type, or f16, bf16, f32 and f64
/// to f32, bf16 (rounded to nearest even) or f64.
bool converts(SafetensorsType from, SafetensorsType to);

/// An error for 8-bit floats that lack scales; those with scales are presented
/// as bf16 (Float8Weights.h).
Status checkScaled(const SafetensorsFile &file, const SafetensorsEntry &entry);

/// `count` elements of a float type as f32.
void toFloats(SafetensorsType type, const std::byte *from, std::size_t count,
              float *to);

/// The same as bf16, rounded to the nearest, half to even.
void toBf16(SafetensorsType type, const std::byte *from, std::size_t count,
            uint16_t *to);

/// Elements from one type to another that converts(), or to the same.
void convertElements(SafetensorsType fromType, std::span<const std::byte> from,
                     SafetensorsType toType, std::span<std::byte> to);

/// Calls task(i, thread) for every i < count on all processors. `thread` is
/// below their number, and no two concurrent calls have the same. Returns the
/// error of the least i; tasks after an error may be skipped.
Status
inParallel(uint32_t count,
           const std::function<Status(uint32_t i, unsigned thread)> &task);

/// From a tensor of a file into `part` of a tensor of the state. The shape is
/// the part's and the type converts.
struct TensorCopy {
  const StateTensor *tensor;
  StatePart part;
  SafetensorsModel::Location from;
};

/// Piece by piece; if the state is in host memory, on all processors and
/// without an intermediate copy.
Status copyTensors(ModelState &model, std::span<const TensorCopy> copies);

} // namespace tessera
