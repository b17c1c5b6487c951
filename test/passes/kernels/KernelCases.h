// Functions whose fused and tiled form is run against the interpreter.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace tessera::testing {

struct KernelCase {
  std::string name;
  std::string text; ///< a module with one function @main
  double low, high; ///< range of the inputs
  double tolerance; ///< of a result, as a part of its largest element
  /// Gives inputs that mean something, such as indices, their values.
  std::function<void(std::vector<interpreter::Tensor> &)> prepare = {};
};

/// What a failing test prints.
inline std::ostream &operator<<(std::ostream &os, const KernelCase &test) {
  return os << test.name;
}

const std::vector<KernelCase> &kernelCases();
const std::vector<KernelCase> &attentionCases();
const std::vector<KernelCase> &contractionCases();
const std::vector<KernelCase> &pagedCases();
const std::vector<KernelCase> &groupedCases();
const std::vector<KernelCase> &routingCases();
const std::vector<KernelCase> &scanCases();
const std::vector<KernelCase> &sampleCases();
const std::vector<KernelCase> &pagedInt8Cases();
/// Micropanels among them, of CPUs alone.
const std::vector<KernelCase> &quantCases();
/// What of those GPUs multiply, and as closely as they do.
std::vector<KernelCase> gpuQuantCases();
/// Of these, bf16 in micropanels.
std::vector<KernelCase> micropanelCases();
/// Of the sizes of models: to be compiled, not run.
const std::vector<KernelCase> &largeAttentionCases();
const std::vector<KernelCase> &largePagedCases();
const std::vector<KernelCase> &largeGroupedCases();
std::vector<KernelCase> largeQuantCases();

} // namespace tessera::testing
