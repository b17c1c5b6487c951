#include "bench/train/BenchTrain.h"
#include "bench/Median.h"
#include "compiler/Driver.h"
#include "models/HfConfig.h"
#include "runtime/hal/Session.h"
#include "runtime/support/PeakFlops.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>

using namespace tessera;

namespace {

llvm::Error makeError(const std::string &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

struct Case {
  int64_t sequence;
  std::string precision;
};

/// Measurements of one case. Rates are model FLOP/s, without recomputation.
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

// The path of a new empty file.
llvm::Expected<std::string> temporaryFile(const char *prefix) {
  llvm::SmallString<128> path;
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile(prefix, "", path))
    return makeError("cannot make a temporary file: " + error.message());
  return path.str().str();
}

llvm::Error compileCase(const BenchTrainOptions &options, const Case &c,
                        const std::string &path) {
  CompileRequest request;
  request.spec = options.spec;
  request.recipe = options.recipe;
  request.executable = false;
  request.output = path;
  if (!options.target.empty())
    request.targets = {options.target};
  request.rebuildCommand = "tessera bench train";
  request.set = {fmt::format("batch.micro={}", options.micro),
                 "batch.accumulate=1",
                 fmt::format("batch.sequence={}", c.sequence),
                 "precision.compute=" + c.precision, "dropout.rate=0"};
  llvm::Expected<CompileSummary> summary = compile(request);
  return summary ? llvm::Error::success() : summary.takeError();
}

// Random tokens: values do not affect the speed.
llvm::Error fillInputs(hal::Session &session, int64_t vocab) {
  for (const char *name : {"tokens", "targets"}) {
    for (const hal::TensorInfo &info : session.inputs("train_step")) {
      if (info.name != name)
        continue;
      std::vector<int32_t> tokens(info.elements());
      std::uint64_t state = 12345;
      for (int32_t &token : tokens) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        token = static_cast<int32_t>((state >> 33) %
                                     static_cast<std::uint64_t>(vocab));
      }
      if (Status status =
              session.writeInput<int32_t>("train_step", name, tokens);
          !status.ok())
        return makeError(status.message());
    }
  }
  return llvm::Error::success();
}

llvm::Error measure(const BenchTrainOptions &options,
                    const std::string &artifact, int64_t vocab,
                    Result &result) {
  hal::SessionOptions sessionOptions;
  sessionOptions.deviceOptions.threads = options.threads;
  sessionOptions.deviceOptions.cpuTarget = options.target;
  sessionOptions.recordOptions.profile = options.profile;
  sessionOptions.programs = {"init", "train_step"};
  auto session = hal::Session::open(artifact, sessionOptions);
  if (!session.ok())
    return makeError(session.message());
  hal::Session &s = **session;
  if (Status status = s.run("init"); !status.ok())
    return makeError(status.message());
  if (llvm::Error error = fillInputs(s, vocab))
    return error;
  std::vector<double> steps, fp32, bf16;
  for (unsigned i = 0; i <= options.steps; ++i) {
    auto start = std::chrono::steady_clock::now();
    if (Status status = s.run("train_step"); !status.ok())
      return makeError(status.message());
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    if (i == 0)
      continue; // first touch of every page
    steps.push_back(seconds);
    fp32.push_back(measurePeakFlops(PeakType::fp32, options.threads).perSecond);
    bf16.push_back(
        measureFastestPeak(PeakType::bf16, options.threads).perSecond);
  }
  result.step = median(steps);
  result.fastest = *std::min_element(steps.begin(), steps.end());
  result.peakFp32 = median(fp32);
  result.peakBf16 = median(bf16);
  result.target = std::string(s.target());
  result.planned = s.memory().peak();
  result.flops = static_cast<double>(
      artifact::findProgram(s.code(), "train_step")->model_flops());
  if (options.profile)
    for (const hal::Profile *profile : s.profiles())
      fmt::print(stderr, "{}\n", profile->table());
  return llvm::Error::success();
}

// The same step in PyTorch, in a process of its own; the script prints the
// seconds of the faster of eager and torch.compile.
llvm::Error measurePyTorch(const BenchTrainOptions &options, const Case &c,
                           Result &result) {
  const std::string script = TESSERA_SOURCE_DIR "/bench/train/pytorch_step.py";
  if (!llvm::sys::fs::exists(script))
    return makeError("no file " + script +
                     "; --pytorch needs the source tree where it was built");
  llvm::Expected<std::string> out = temporaryFile("bench-torch");
  if (!out)
    return out.takeError();
  llvm::FileRemover remover(*out);
  std::string batch = std::to_string(options.micro),
              sequence = std::to_string(c.sequence),
              threads = std::to_string(options.threads);
  llvm::StringRef args[] = {options.python, script,      "--config",
                            options.spec,   "--batch",   batch,
                            "--sequence",   sequence,    "--precision",
                            c.precision,    "--threads", threads};
  std::optional<llvm::StringRef> redirects[] = {
      std::nullopt, llvm::StringRef(*out), std::nullopt};
  std::string message;
  int code = llvm::sys::ExecuteAndWait(options.python, args, std::nullopt,
                                       redirects, 900, 0, &message);
  auto text = llvm::MemoryBuffer::getFile(*out);
  if (code != 0 || !text ||
      (*text)->getBuffer().trim().getAsDouble(result.pytorch))
    return makeError(options.python +
                     ": the PyTorch step failed; see its errors above" +
                     (message.empty() ? "" : ": " + message));
  return llvm::Error::success();
}

void print(const BenchTrainOptions &options, const Case &c, const Result &r) {
  double rate = r.flops / r.step;
  double peak = c.precision == "bf16" ? r.peakBf16 : r.peakFp32;
  double tokens = static_cast<double>(options.micro * c.sequence); // of a step
  if (options.json) {
    llvm::json::Object line{{"bench", "train"},
                            {"spec", options.spec},
                            {"batch", options.micro},
                            {"sequence", c.sequence},
                            {"precision", c.precision},
                            {"threads", options.threads},
                            {"target", r.target},
                            {"step_s", r.step},
                            {"fastest_s", r.fastest},
                            {"tokens_per_s", tokens / r.step},
                            {"gflops", rate / 1e9},
                            {"peak_fp32_gflops", r.peakFp32 / 1e9},
                            {"peak_bf16_gflops", r.peakBf16 / 1e9},
                            {"mfu", rate / peak},
                            {"planned_bytes", r.planned}};
    if (r.pytorch > 0) {
      line["pytorch_step_s"] = r.pytorch;
      line["speedup"] = r.pytorch / r.step;
    }
    llvm::outs() << llvm::json::Value(std::move(line)) << "\n";
    llvm::outs().flush();
  } else {
    fmt::print("{} B={} T={:<4} {} {:<16} {:.3f} s/step (best {:.3f})  {:7.1f} "
               "tok/s  {:6.1f} GFLOP/s = {:.1f} % of the {} "
               "peak ({:.1f})",
               options.spec, options.micro, c.sequence, c.precision, r.target,
               r.step, r.fastest, tokens / r.step, rate / 1e9,
               100 * rate / peak, c.precision, peak / 1e9);
    if (r.pytorch > 0)
      fmt::print("  PyTorch {:.3f} s, {:.2f}x", r.pytorch, r.pytorch / r.step);
    fmt::print("\n");
    std::fflush(stdout);
  }
}

// PyTorch first, so that a missing package fails before the compilation.
llvm::Error benchCase(const BenchTrainOptions &options, const Case &c,
                      int64_t vocab) {
  Result result;
  if (!options.python.empty())
    if (llvm::Error error = measurePyTorch(options, c, result))
      return error;
  llvm::Expected<std::string> artifact = temporaryFile("bench-train");
  if (!artifact)
    return artifact.takeError();
  llvm::FileRemover remover(*artifact);
  if (llvm::Error error = compileCase(options, c, *artifact))
    return error;
  if (llvm::Error error = measure(options, *artifact, vocab, result))
    return error;
  print(options, c, result);
  return llvm::Error::success();
}

} // namespace

llvm::Error tessera::benchTrain(const BenchTrainOptions &given) {
  BenchTrainOptions options = given;
  if (options.spec.empty())
    options.spec = TESSERA_SOURCE_DIR "/models/specs/gpt2-124m";
  auto config = models::loadHfConfig(options.spec);
  if (!config.ok())
    return makeError(config.message());
  for (int64_t sequence : options.sequences)
    for (const std::string &precision : options.precisions)
      if (llvm::Error error =
              benchCase(options, {sequence, precision}, config->spec.vocab))
        return error;
  return llvm::Error::success();
}
