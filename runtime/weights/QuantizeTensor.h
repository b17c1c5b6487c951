// Quantizes weights of a file to integers or e4m3 with scales, without
// calibration.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/weights/ModelState.h"
#include "runtime/weights/WeightFactors.h"

#include <span>

namespace tessera {

/// One micropanel: at most 16 rows of `layout.columns` weights of a float type,
/// row-major, as `layout.words()` × 16 values and `layout.scaleRows()` × 16
/// scales. False, with micropanels half made, if there is a weight that is not
/// finite or beyond largestWeight (QuantizeGroup.h).
///
/// A group's scale is, as f16, max |w| / 127 for 8 bits, rounded up where f16
/// is subnormal. For 4 bits it is w /
/// -8 × (1 - i / 20), with w the weight that is largest by magnitude, for that
/// i of 0 to 7 which has the least sum of squared errors (the first of equals):
/// the side of w has eight steps and the other seven, and finer steps may be
/// worth clipping w. Weights times the scale's reciprocal are then rounded to
/// the nearest, half to even, and clamped to ±127, or [-8, 7].
///
/// With zero points, and l and h the least and the largest of the weights and
/// 0: the scale is (h - l) / 255 for 8 bits; for 4 bits (h - l) / 15 × (1 - i /
/// 20), i chosen in the same way. Weights times the reciprocal are rounded and
/// clamped to steps from l (or l × (1 - i / 20)) on, rounded, too; the zero
/// point is what makes that -128, or -8.
///
/// Of e4m3 the scale is max |w| / 448, rounded up where f16 is subnormal.
/// Weights times the reciprocal are rounded to the nearest e4m3, ties to even,
/// and clamped to ±448.
bool quantizeMicropanel(const QuantizedLayout &layout, SafetensorsType type,
                        std::span<const std::byte> rows,
                        std::span<uint32_t> values, std::span<uint16_t> scales);

/// Whether the file's matrix has the layout's shape and a float type.
Status checkQuantizable(const QuantizedPart &part, const SafetensorsFile &file,
                        const SafetensorsEntry &entry);

/// Quantizes a matrix that checkQuantizable has passed, on all processors, a
/// few micropanels at a time; a transposed one is read into memory. The result
/// does not depend on the number of processors. Weights that are not finite, or
/// beyond the range of scales, are errors. If `factors` is set, weights are
/// multiplied by them first, in f32; not supported for a transposed one.
Status quantizeTensor(ModelState &model, const StateTensor &values,
                      const StateTensor &scales, const SafetensorsFile &file,
                      const SafetensorsEntry &entry,
                      const TensorFactors *factors = nullptr);

} // namespace tessera
