#include "bench/train/BenchTrain.h"
#include "compiler/Driver.h"
#include "runtime/hal/Session.h"
#include "runtime/support/PeakFlops.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <numeric>

using namespace tessera;

namespace {

llvm::Error complain(const std::string &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

struct Case {
  int64_t sequence;
  std::string precision;
};

/// What one case measured. Rates are FLOP/s of the model, whatever is computed.
struct Result {
  double step = 0;     ///< seconds, median
  double fastest = 0;  ///< seconds
  double peakFp32 = 0; ///< of all threads, median over the run
  double peakBf16 = 0;
  double flops = 0; ///< of a step
  std::string target;
  std::uint64_t planned = 0; ///< peak bytes
  double pytorch = 0;        ///< seconds a step; 0: not measured
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

llvm::Expected<std::string> compileCase(const BenchTrainOptions &options,
                                        const Case &c) {
  llvm::SmallString<128> path;
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile("bench-train", "tsr", path))
    return complain("cannot make a temporary file: " + error.message());
  CompileRequest request;
  request.spec = options.spec;
  request.recipe = options.recipe;
  request.executable = false;
  request.output = path.str().str();
  request.rebuildCommand = "tessera bench train";
  request.set = {fmt::format("batch.micro={}", options.micro),
                 "batch.accumulate=1",
                 fmt::format("batch.sequence={}", c.sequence),
                 "precision.compute=" + c.precision, "dropout.rate=0"};
  llvm::Expected<CompileSummary> summary = compile(request);
  if (!summary)
    return summary.takeError();
  return request.output;
}

// Random tokens; the model does not mind.
llvm::Error fillInputs(hal::Session &session) {
  for (const char *name : {"tokens", "targets"}) {
    for (const hal::TensorInfo &info : session.inputs("train_step")) {
      if (info.name != name)
        continue;
      std::vector<int32_t> tokens(info.elements());
      std::uint32_t state = 12345;
      for (int32_t &token : tokens) {
        state = state * 1664525 + 1013904223;
        token = static_cast<int32_t>((state >> 8) % 1000);
      }
      if (Status status =
              session.writeInput<int32_t>("train_step", name, tokens);
          !status.ok())
        return complain(status.message());
    }
  }
  return llvm::Error::success();
}

llvm::Error measure(const BenchTrainOptions &options,
                    const std::string &artifact, Result &result) {
  hal::SessionOptions sessionOptions;
  sessionOptions.deviceOptions.threads = options.threads;
  sessionOptions.deviceOptions.cpuTarget = options.cpuTarget;
  sessionOptions.recordOptions.profile = options.profile;
  sessionOptions.programs = {"init", "train_step"};
  auto session = hal::Session::open(artifact, sessionOptions);
  if (!session.ok())
    return complain(session.message());
  hal::Session &s = **session;
  if (Status status = s.run("init"); !status.ok())
    return complain(status.message());
  if (llvm::Error error = fillInputs(s))
    return error;
  std::vector<double> steps, fp32, bf16;
  for (unsigned i = 0; i <= options.steps; ++i) {
    auto start = std::chrono::steady_clock::now();
    if (Status status = s.run("train_step"); !status.ok())
      return complain(status.message());
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    if (i == 0)
      continue; // first touch of every page
    steps.push_back(seconds);
    fp32.push_back(measurePeakFlops(PeakType::fp32, options.threads).perSecond);
    bf16.push_back(measurePeakFlops(PeakType::bf16, options.threads).perSecond);
  }
  result.step = median(steps);
  result.fastest = *std::min_element(steps.begin(), steps.end());
  result.peakFp32 = median(fp32);
  result.peakBf16 = median(bf16);
  result.target = std::string(s.target());
  result.planned = s.memory().peak();
  result.flops = static_cast<double>(
      s.artifactReader().program("train_step")->model_flops());
  if (options.profile)
    for (const hal::Profile *profile : s.profiles())
      fmt::print(stderr, "{}\n", profile->table());
  return llvm::Error::success();
}

// The same step by PyTorch, in its own process; the script prints the seconds
// of the better of eager and torch.compile.
llvm::Error measurePyTorch(const BenchTrainOptions &options, const Case &c,
                           Result &result) {
  llvm::SmallString<128> out;
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile("bench-torch", "txt", out))
    return complain("cannot make a temporary file: " + error.message());
  std::string batch = std::to_string(options.micro),
              sequence = std::to_string(c.sequence),
              threads = std::to_string(options.threads);
  llvm::StringRef args[] = {options.python, "bench/train/pytorch_step.py",
                            "--config",     options.spec,
                            "--batch",      batch,
                            "--sequence",   sequence,
                            "--dtype",      c.precision,
                            "--threads",    threads};
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, out.str(),
                                                std::nullopt};
  std::string message;
  int code = llvm::sys::ExecuteAndWait(options.python, args, std::nullopt,
                                       redirects, 900, 0, &message);
  auto text = llvm::MemoryBuffer::getFile(out);
  llvm::sys::fs::remove(out);
  if (code != 0 || !text ||
      (*text)->getBuffer().trim().getAsDouble(result.pytorch))
    return complain(options.python +
                    ": the PyTorch step failed; its errors stand above" +
                    (message.empty() ? "" : ": " + message));
  return llvm::Error::success();
}

void print(const BenchTrainOptions &options, const Case &c, const Result &r) {
  double rate = r.flops / r.step;
  double peak = c.precision == "bf16" ? r.peakBf16 : r.peakFp32;
  if (options.json) {
    fmt::print("{{\"bench\":\"train\",\"spec\":\"{}\",\"batch\":{},"
               "\"sequence\":{},\"precision\":\"{}\",\"threads\":{},"
               "\"target\":\"{}\",\"step_s\":{:.4f},\"fastest_s\":{:.4f},"
               "\"tokens_per_s\":{:.1f},\"gflops\":{:.1f},"
               "\"peak_fp32_gflops\":{:.1f},\"peak_bf16_gflops\":{:.1f},"
               "\"mfu\":{:.4f},\"planned_bytes\":{}",
               options.spec, options.micro, c.sequence, c.precision,
               options.threads, r.target, r.step, r.fastest,
               options.micro * c.sequence / r.step, rate / 1e9,
               r.peakFp32 / 1e9, r.peakBf16 / 1e9, rate / peak, r.planned);
    if (r.pytorch > 0)
      fmt::print(",\"pytorch_step_s\":{:.4f},\"speedup\":{:.3f}", r.pytorch,
                 r.pytorch / r.step);
    fmt::print("}}\n");
  } else {
    fmt::print("{} B={} T={:<4} {} {:<16} {:.3f} s/step (best {:.3f})  {:7.1f} "
               "tok/s  {:6.1f} GFLOP/s = {:.1f} % of the {} "
               "peak ({:.1f})",
               options.spec, options.micro, c.sequence, c.precision, r.target,
               r.step, r.fastest, options.micro * c.sequence / r.step,
               rate / 1e9, 100 * rate / peak, c.precision, peak / 1e9);
    if (r.pytorch > 0)
      fmt::print("  PyTorch {:.3f} s, {:.2f}x", r.pytorch, r.pytorch / r.step);
    fmt::print("\n");
  }
  std::fflush(stdout);
}

} // namespace

llvm::Error tessera::benchTrain(const BenchTrainOptions &options) {
  for (int64_t sequence : options.sequences)
    for (const std::string &precision : options.precisions) {
      Case c{sequence, precision};
      llvm::Expected<std::string> artifact = compileCase(options, c);
      if (!artifact)
        return artifact.takeError();
      Result result;
      llvm::Error error = measure(options, *artifact, result);
      llvm::sys::fs::remove(*artifact);
      if (error)
        return error;
      if (!options.python.empty())
        if (llvm::Error failed = measurePyTorch(options, c, result))
          return failed;
      print(options, c, result);
    }
  return llvm::Error::success();
}
