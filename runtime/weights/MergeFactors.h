// A matrix with the factors of its adapter: W + scale × B A (LoRA), with rows
// of given norms (DoRA).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// Of a linear layer with `rows` outputs and `columns` inputs.
struct FactorShape {
  uint64_t rows = 0, columns = 0, rank = 0;
  double scale = 1;          ///< alpha / rank
  bool isTransposed = false; ///< W is [columns, rows] (GPT-2's Conv1D)

  /// Whether tensors of these shapes are W, A [rank, columns] and B [rows,
  /// rank]; sets the sizes if so.
  bool take(const std::vector<uint64_t> &weight,
            const std::vector<uint64_t> &in, const std::vector<uint64_t> &out);
};

/// Adds the product to the weight. With `magnitudes` [rows], each row is then
/// multiplied so that this is its norm; a row of zeros stays as it is. Sums are
/// in fp64, and each element is rounded once.
void mergeFactors(const FactorShape &shape, std::span<float> weight,
                  std::span<const float> in, std::span<const float> out,
                  std::span<const float> magnitudes = {});

/// What mergeFactors would multiply each row of the sum by, [rows].
std::vector<double> rowScales(const FactorShape &shape,
                              std::span<const float> weight,
                              std::span<const float> in,
                              std::span<const float> out,
                              std::span<const float> magnitudes);

} // namespace tessera
