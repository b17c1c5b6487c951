#include "test/metamorphic/Check.h"
#include "test/metamorphic/CheckKernels.h"
#include "test/metamorphic/Generate.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/PrettyStackTrace.h"

using namespace mlir;

namespace tessera::metamorphic {

// Graphs that become kernels of one module.
static constexpr size_t kBatch = 16;

void checkPassesOf(MLIRContext &context, uint64_t first, uint64_t last,
                   Counts &counts, OnFailure onFailure) {
  for (uint64_t seed = first; seed < last; ++seed) {
    llvm::PrettyStackTraceFormat here("passes of seed %llu",
                                      static_cast<unsigned long long>(seed));
    OwningOpRef<ModuleOp> module = generate(&context, seed);
    interpreter::Tensors inputs = makeInputs(*module);
    if (auto failure = checkPasses(*module, inputs, counts))
      onFailure({seed, std::move(*failure)});
  }
}

static void checkBatch(MLIRContext &context, ArrayRef<uint64_t> seeds,
                       StringRef target, Counts &counts, OnFailure onFailure) {
  llvm::PrettyStackTraceFormat here("kernels of seeds from %llu",
                                    static_cast<unsigned long long>(seeds[0]));
  KernelBatch batch;
  SmallVector<uint64_t> taken;
  for (uint64_t seed : seeds)
    if (auto failure = batch.add(*generate(&context, seed)))
      onFailure({seed, std::move(*failure)});
    else
      taken.push_back(seed);
  for (auto [i, failure] : llvm::enumerate(batch.run(target, counts)))
    if (failure)
      onFailure({taken[i], std::move(*failure)});
}

void checkKernelsOf(MLIRContext &context, uint64_t first, uint64_t last,
                    StringRef target, Share share, Counts &counts,
                    OnFailure onFailure) {
  uint64_t batch = 0;
  SmallVector<uint64_t> seeds;
  for (uint64_t seed = first; seed < last; ++seed) {
    if (kindOf(seed) != Kind::interpreter)
      seeds.push_back(seed);
    if (seeds.empty() || (seeds.size() < kBatch && seed + 1 < last))
      continue;
    if (batch++ % share.count == share.index)
      checkBatch(context, seeds, target, counts, onFailure);
    seeds.clear();
  }
}

std::optional<Failure>
check(ModuleOp module, llvm::ArrayRef<std::string> targets, Counts &counts) {
  OwningOpRef<ModuleOp> copy(module.clone());
  interpreter::Tensors inputs = makeInputs(module);
  if (auto failure = checkPasses(*copy, inputs, counts))
    return failure;
  for (const std::string &target : targets) {
    KernelBatch batch;
    if (auto failure = batch.add(module))
      return failure;
    if (auto failure = batch.run(target, counts).front())
      return failure;
  }
  return std::nullopt;
}

std::string describe(const Report &report) {
  return llvm::formatv("seed {0}, {1}: {2}", report.seed, report.failure.stage,
                       report.failure.message);
}

std::string describeKernels(const Counts &counts) {
  double unknown = counts.elements
                       ? 100.0 * static_cast<double>(counts.unknown) /
                             static_cast<double>(counts.elements)
                       : 0;
  return llvm::formatv("{0} functions, {1} kernels in {2} launches, {3} runs, "
                       "{4} elements compared with a bound ({5:f2} % unknown)",
                       counts.functions, counts.kernels, counts.launches,
                       counts.runs, counts.elements, unknown);
}

std::string describe(const Counts &counts) {
  return llvm::formatv("{0} graphs, {1} states between passes; {2}",
                       counts.graphs, counts.states, describeKernels(counts));
}

} // namespace tessera::metamorphic
