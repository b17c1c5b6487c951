// tessera bench infer: prefill and decode, in the format of llama-bench.
#pragma once
#include "compiler/Driver.h"
#include "runtime/bench/InferBench.h"
#include "runtime/generate/InferenceRanks.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct BenchInferSettings {
  std::string place;            ///< a directory with config.json
  std::string recipe;           ///< of the inference programs
  std::vector<std::string> set; ///< overrides of the recipe
  std::string cache = "on";
  uint64_t cacheBytes = CompileRequest::kMostCacheBytes;
  std::string target;   ///< "cpu:avx512"; empty: chosen by the runtime
  bool random = false;  ///< weights drawn by the model's own initializer
  int64_t seed = 1337;  ///< of random weights
  std::string mesh;     ///< of the ranks: "tensor=2"; empty: one process
  unsigned threads = 0; ///< 0: all processors, or this rank's part of them
  bool json = false;
  bool profile = false; ///< time each step of the programs
  bench::InferBenchOptions bench;
};

/// Compiles and opens the model, measures it, and prints a table or lines of
/// JSON. Sets `threads` if it is 0. On ranks, null otherwise, all call it, and
/// rank 0 measures and prints.
Status benchInfer(BenchInferSettings &settings, InferenceRanks *ranks);

} // namespace tessera
