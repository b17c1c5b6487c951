// tessera bench gemm: one contraction, compiled as any other, against the
// register-loop peak measured in the same run.
#pragma once
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Counts are at least 1.
struct BenchGemmOptions {
  int64_t m = 1024, n = 1024, k = 1024;
  std::string trans =
      "nn"; ///< "n" or "t" for each operand: t is stored transposed
  std::vector<std::string> precisions = {"fp32", "bf16"};
  std::vector<unsigned> threads = {1, 2};
  std::string target;  ///< "cpu:avx512"; empty: all that this processor runs
  unsigned pairs = 15; ///< measurements, each with its own peak
  bool json = false;
};

/// One line (or one JSON object) for each precision, target and thread count,
/// on standard output. The peak is that of the instruction and the registers
/// that this code object would use at best: for bf16 without dot products, that
/// of f32 arithmetic.
llvm::Error benchGemm(const BenchGemmOptions &options);

} // namespace tessera
