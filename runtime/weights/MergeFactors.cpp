#include "runtime/weights/MergeFactors.h"

#include <algorithm>
#include <cmath>

namespace tessera {

bool FactorShape::take(const std::vector<uint64_t> &weight,
                       const std::vector<uint64_t> &in,
                       const std::vector<uint64_t> &out) {
  if (weight.size() != 2 || in.size() != 2 || out.size() != 2 ||
      in[0] != out[1])
    return false;
  rank = in[0], columns = in[1], rows = out[0];
  return weight == (isTransposed ? std::vector{columns, rows}
                                 : std::vector{rows, columns});
}

/// Where an element of the weight is.
static uint64_t indexOf(const FactorShape &shape, uint64_t row,
                        uint64_t column) {
  return shape.isTransposed ? column * shape.rows + row
                            : row * shape.columns + column;
}

/// One row of the sum.
static void sumRow(const FactorShape &shape, std::span<const float> weight,
                   std::span<const float> in, std::span<const float> out,
                   uint64_t row, std::span<double> sums) {
  const auto &[rows, columns, rank, scale, isTransposed] = shape;
  std::ranges::fill(sums, 0.0);
  for (uint64_t k = 0; k < rank; ++k)
    for (uint64_t column = 0; column < columns; ++column)
      sums[column] +=
          double(out[row * rank + k]) * double(in[k * columns + column]);
  for (uint64_t column = 0; column < columns; ++column)
    sums[column] =
        double(weight[indexOf(shape, row, column)]) + scale * sums[column];
}

static double scaleOf(std::span<const double> sums, float magnitude) {
  double squares = 0;
  for (double value : sums)
    squares += value * value;
  return squares > 0 ? double(magnitude) / std::sqrt(squares) : 1;
}

void mergeFactors(const FactorShape &shape, std::span<float> weight,
                  std::span<const float> in, std::span<const float> out,
                  std::span<const float> magnitudes) {
  std::vector<double> sums(shape.columns);
  for (uint64_t row = 0; row < shape.rows; ++row) {
    sumRow(shape, weight, in, out, row, sums);
    const double scale =
        magnitudes.empty() ? 1 : scaleOf(sums, magnitudes[row]);
    for (uint64_t column = 0; column < shape.columns; ++column)
      weight[indexOf(shape, row, column)] =
          static_cast<float>(scale * sums[column]);
  }
}

std::vector<double> rowScales(const FactorShape &shape,
                              std::span<const float> weight,
                              std::span<const float> in,
                              std::span<const float> out,
                              std::span<const float> magnitudes) {
  std::vector<double> sums(shape.columns), scales(shape.rows);
  for (uint64_t row = 0; row < shape.rows; ++row) {
    sumRow(shape, weight, in, out, row, sums);
    scales[row] = scaleOf(sums, magnitudes[row]);
  }
  return scales;
}

} // namespace tessera
