// Functions whose fused and tiled form is run against the interpreter.
#pragma once
#include <ostream>
#include <string>
#include <vector>

namespace tessera::testing {

struct KernelCase {
  std::string name;
  std::string text; ///< a module with one function @main
  double low, high; ///< range of the inputs
  double tolerance; ///< of a result, as a part of its largest element
};

/// What a failing test prints.
inline std::ostream &operator<<(std::ostream &os, const KernelCase &test) {
  return os << test.name;
}

const std::vector<KernelCase> &kernelCases();
const std::vector<KernelCase> &attentionCases();
const std::vector<KernelCase> &contractionCases();
/// Of the sizes of models: to be compiled, not run.
const std::vector<KernelCase> &largeAttentionCases();

} // namespace tessera::testing
