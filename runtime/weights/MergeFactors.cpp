#include "runtime/weights/MergeFactors.h"

#include <algorithm>

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

void mergeFactors(const FactorShape &shape, std::span<float> weight,
                  std::span<const float> in, std::span<const float> out) {
  const auto &[rows, columns, rank, scale, isTransposed] = shape;
  std::vector<double> sums(columns);
  for (uint64_t row = 0; row < rows; ++row) {
    std::ranges::fill(sums, 0.0);
    for (uint64_t k = 0; k < rank; ++k)
      for (uint64_t column = 0; column < columns; ++column)
        sums[column] +=
            double(out[row * rank + k]) * double(in[k * columns + column]);
    for (uint64_t column = 0; column < columns; ++column) {
      float &value =
          weight[isTransposed ? column * rows + row : row * columns + column];
      value = static_cast<float>(double(value) + scale * sums[column]);
    }
  }
}

} // namespace tessera
