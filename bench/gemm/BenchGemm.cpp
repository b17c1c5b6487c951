#include "bench/gemm/BenchGemm.h"
#include "bench/Median.h"
#include "compiler/InitAll.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/LoadCode.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/Tiling.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/PeakFlops.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <thread>

using namespace mlir;

namespace tessera {
namespace {

using Memory = std::unique_ptr<void, void (*)(void *)>;

/// Zeros in 64-byte aligned memory: values do not affect the speed. Null if out
/// of memory.
Memory zeros(size_t bytes) {
  Memory memory(std::aligned_alloc(64, (bytes + 127) / 64 * 64), std::free);
  if (memory)
    std::memset(memory.get(), 0, bytes);
  return memory;
}

/// The compiled contraction and its operands.
struct Gemm {
  std::unique_ptr<cpu::LoadedCode> code;
  cpu::KernelEntry entry = nullptr;
  int64_t blocks = 0;
  uint64_t scratchBytes = 0;
  std::vector<Memory> buffers;
};

struct Speed {
  double flops, peak; ///< per second
};

std::string moduleText(const BenchGemmOptions &options,
                       const std::string &precision) {
  std::string type = precision == "fp32" ? "f32" : precision;
  auto tensor = [&](int64_t rows, int64_t columns) {
    return "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) +
           "x" + type + ">";
  };
  bool transposeLhs = options.trans[0] == 't',
       transposeRhs = options.trans[1] == 't';
  std::string x = transposeLhs ? tensor(options.k, options.m)
                               : tensor(options.m, options.k),
              y = transposeRhs ? tensor(options.n, options.k)
                               : tensor(options.k, options.n),
              z = tensor(options.m, options.n),
              equation = std::string(transposeLhs ? "km" : "mk") +
                         (transposeRhs ? ",nk" : ",kn") + "->mn",
              types = "(" + x + ", " + y + ") -> " + z;
  return "func.func @f(%x: " + x + ", %y: " + y + ") -> " + z +
         " {\n%r = graph.cluster contraction \"gemm\" (%x, %y) : " + types +
         " {\n^bb0(%a: " + x + ", %b: " + y + "):\n%c = graph.einsum \"" +
         equation + "\" %a, %b : " + types + "\ngraph.yield %c : " + z +
         "\n}\nreturn %r : " + z + "\n}";
}

llvm::Expected<Gemm> compile(const BenchGemmOptions &options,
                             const std::string &precision,
                             const TileTarget &target) {
  DialectRegistry registry;
  registerAllDialects(registry);
  cpu::registerCpuTarget(registry);
  MLIRContext context(registry);
  std::string message; // of the first error: later ones follow from it
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (message.empty() &&
        diagnostic.getSeverity() == DiagnosticSeverity::Error)
      message = ": " + diagnostic.str();
  });
  auto module =
      parseSourceString<ModuleOp>(moduleText(options, precision), &context);
  const std::string names[] = {target.name};
  PassManager manager(&context);
  EmitKernelsOptions passOptions;
  passOptions.targets = names;
  manager.addPass(createEmitKernels(passOptions));
  if (!module || failed(manager.run(*module)))
    return llvm::createStringError("the contraction cannot be compiled" +
                                   message);
  Gemm gemm;
  std::string kernel;
  module->walk([&](tile::LaunchOp launch) {
    kernel = launch.getKernel().str();
    gemm.blocks = launch.getBlocks()[0];
  });
  ModuleOp kernels;
  for (auto nested : module->getOps<ModuleOp>())
    kernels = nested;
  auto objects = cpu::compileKernels({{kernels, target}}, {});
  if (!objects)
    return objects.takeError();
  gemm.scratchBytes = objects->front().scratchBytes.lookup(kernel);
  auto code = cpu::LoadedCode::load(objects->front().elf);
  if (!code)
    return code.takeError();
  gemm.code = std::move(*code);
  gemm.entry = gemm.code->find(kernel);
  size_t bytes = precision == "fp32" ? 4 : 2;
  gemm.buffers.reserve(3);
  for (int64_t elements :
       {options.m * options.k, options.k * options.n, options.m * options.n}) {
    gemm.buffers.push_back(zeros(elements * bytes));
    if (!gemm.buffers.back())
      return llvm::createStringError("no memory for an operand of " +
                                     std::to_string(elements * bytes) +
                                     " bytes; take smaller --m, --n, --k");
  }
  return gemm;
}

/// Seconds of the fastest of some runs; blocks are distributed dynamically.
double fastestRun(const Gemm &gemm, unsigned threads) {
  constexpr int kRuns = 5;
  std::vector<void *> pointers;
  for (const Memory &buffer : gemm.buffers)
    pointers.push_back(buffer.get());
  std::atomic<int64_t> next = 0;
  auto start = std::chrono::steady_clock::now();
  double best = std::numeric_limits<double>::infinity();
  int phase = 0; // even: a run begins, odd: it has ended
  std::barrier gate(threads, [&]() noexcept {
    auto now = std::chrono::steady_clock::now();
    if (phase++ % 2)
      best = std::min(best, std::chrono::duration<double>(now - start).count());
    next = 0;
    start = now;
  });
  auto work = [&] {
    Memory scratch = zeros(gemm.scratchBytes + 64);
    for (int run = 0; run < kRuns; ++run) {
      gate.arrive_and_wait();
      for (int64_t i = next++; i < gemm.blocks; i = next++)
        gemm.entry(pointers.data(), nullptr, i, i + 1, scratch.get());
      gate.arrive_and_wait();
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads; ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  return best;
}

void report(const BenchGemmOptions &options, const std::string &precision,
            const TileTarget &target, unsigned threads,
            llvm::ArrayRef<Speed> pairs, const PeakFlops &peak) {
  std::vector<double> ratios, speeds, peaks;
  for (const Speed &pair : pairs) {
    ratios.push_back(pair.flops / pair.peak);
    speeds.push_back(pair.flops);
    peaks.push_back(pair.peak);
  }
  double best = *llvm::max_element(ratios);
  if (!options.json) {
    llvm::outs() << llvm::formatv(
        "{0} {1} {2} threads {3}x{4}x{5} {6}: {7:f1} GFLOP/s, {8:P1} of {9} "
        "(best {10:P1}, peak {11:f1})\n",
        precision, target.name, threads, options.m, options.n, options.k,
        options.trans, median(speeds) * 1e-9, median(ratios), peak.instruction,
        best, median(peaks) * 1e-9);
    return;
  }
  llvm::json::Object line{{"bench", "gemm"},
                          {"precision", precision},
                          {"target", target.name},
                          {"threads", threads},
                          {"m", options.m},
                          {"n", options.n},
                          {"k", options.k},
                          {"trans", options.trans},
                          {"gflops", median(speeds) * 1e-9},
                          {"peak_gflops", median(peaks) * 1e-9},
                          {"peak_instruction", peak.instruction},
                          {"ratio_median", median(ratios)},
                          {"ratio_best", best},
                          {"processor", CpuFeatures::brand()}};
  llvm::outs() << llvm::json::Value(std::move(line)) << "\n";
}

} // namespace

llvm::Error benchGemm(const BenchGemmOptions &options) {
  constexpr int64_t kMostElements = int64_t(1) << 30;
  for (auto [rows, columns] :
       {std::pair(options.m, options.k), std::pair(options.k, options.n),
        std::pair(options.m, options.n)})
    if (rows > kMostElements / columns)
      return llvm::createStringError(llvm::formatv(
          "a matrix of {0} x {1} has more than 2^30 elements; make --m, --n or "
          "--k smaller",
          rows, columns));
  bool any = false;
  for (const std::string &precision : options.precisions)
    for (const TileTarget &target : cpuTileTargets()) {
      if (!options.target.empty() && options.target != target.name)
        continue;
      if (!cpu::missingFeatures(target.name).empty())
        continue;
      any = true;
      llvm::Expected<Gemm> gemm = compile(options, precision, target);
      if (!gemm)
        return gemm.takeError();
      // The peak of the instructions that this code object uses: dot products
      // only if it has them, and registers of its width.
      PeakType peakType = precision != "bf16"  ? PeakType::fp32
                          : target.matrixTiles ? PeakType::bf16Matrix
                          : target.bf16Dot     ? PeakType::bf16
                                               : PeakType::fp32;
      double flops = 2.0 * options.m * options.n * options.k;
      for (unsigned threads : options.threads) {
        std::vector<Speed> pairs;
        PeakFlops peak;
        for (unsigned i = 0; i < options.pairs; ++i) {
          peak = measurePeakFlops(peakType, threads,
                                  static_cast<unsigned>(target.lanes) * 32);
          pairs.push_back({flops / fastestRun(*gemm, threads), peak.perSecond});
        }
        report(options, precision, target, threads, pairs, peak);
      }
    }
  if (!any)
    return llvm::createStringError("this processor runs no CPU target" +
                                   (options.target.empty()
                                        ? std::string()
                                        : " named '" + options.target + "'"));
  return llvm::Error::success();
}

} // namespace tessera
