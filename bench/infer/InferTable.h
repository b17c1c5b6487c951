// The output of tessera bench infer: a table as llama-bench prints it, or lines
// of JSON.
#pragma once
#include "bench/infer/BenchInfer.h"

#include <string>
#include <vector>

namespace tessera {

/// The model's columns.
struct InferModel {
  std::string name;
  uint64_t bytes = 0; ///< of all weights; on ranks, of rank 0's
  int64_t parameters = 0;
  std::string target;
  std::string kept; ///< the type of keys and values in the cache
};

struct InferTable {
  const BenchInferSettings &settings;
  const InferModel &model;
  const bench::InferBenchResult &result;
  /// On ranks: the share of collectives in the time of rank 0's programs, of
  /// each test without its warm-up.
  std::vector<double> collectives = {};

  /// As the settings say.
  void print() const { settings.json ? printJson() : printMarkdown(); }

private:
  void printMarkdown() const;
  void printJson() const;
  std::string lastColumn(size_t test) const;
};

} // namespace tessera
