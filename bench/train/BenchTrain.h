// tessera bench train: a whole training step against the peak of the machine
// that runs it, measured in the same run.
#pragma once
#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Counts are at least 1.
struct BenchTrainOptions {
  std::string spec;   ///< empty: models/specs/gpt2-124m of the source tree
  std::string recipe; ///< empty: defaults
  int64_t micro = 4;  ///< B
  std::vector<int64_t> sequences = {64, 512};
  std::vector<std::string> precisions = {"fp32", "bf16"};
  unsigned threads = 2;
  unsigned steps = 5; ///< counted; the peak is measured after each
  std::string target; ///< "cpu:avx512"; empty: what the runtime chooses
  std::string
      python; ///< interpreter with torch, for the comparison; empty: none
  bool json = false;
  bool profile = false; ///< print the time of each kernel to stderr
};

/// One line (or one JSON object) a case. An error is one line.
llvm::Error benchTrain(const BenchTrainOptions &options);

} // namespace tessera
