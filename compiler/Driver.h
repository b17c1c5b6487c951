// From a model spec to an artifact: runs the phases, dumps them on request,
// compiles kernels, writes the result. `tessera compile` is a thin shell on it.
#pragma once
#include "llvm/Support/Error.h"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct CompileRequest {
  std::string spec;       ///< directory with config.json, or the file itself
  std::string configText; ///< config.json itself; `spec` then only names it
  std::string recipe;     ///< path of recipe.yaml; empty: all defaults
  std::vector<std::string> set; ///< recipe overrides, "optimizer.lr=3e-4"
  std::string output;           ///< path to write
  bool executable = true; ///< append to a copy of the runtime, or a bare .tsr
  bool infer = false;     ///< programs that generate instead of ones that train
  /// With `infer`: @calibrate (models/Build.h) in place of these.
  bool calibrate = false;
  std::string runtime; ///< the prebuilt runtime to copy
  std::string mesh;    ///< "data=2,tensor=2,zero=1"; empty: one device
  int64_t world = 0;   ///< what the axes multiply to; 0: whatever that is
  std::vector<std::string>
      targets;             ///< as resolveTargets takes them; empty: cpu
  bool emulate = true;     ///< code for the emulated GPU beside that for CUDA
  std::string dumpDir;     ///< one file a phase; empty: none
  bool dumpPasses = false; ///< also after every pass that changed something
  /// Options of MLIR's pass manager: "--mlir-timing",
  /// "--mlir-pass-statistics", "--mlir-print-ir-after=fuse" and so on.
  std::vector<std::string> mlirOptions;
  std::string from;  ///< continue after this phase with `input`
  std::string to;    ///< stop after this phase and write its IR to `output`
  std::string input; ///< .mlir, with `from`
  std::string cache = "on"; ///< on | off | redo | readonly
  /// That programs and kernels may take there; those that were used longest ago
  /// make room. 0: as `off`.
  uint64_t cacheBytes = kMostCacheBytes;
  static constexpr uint64_t kMostCacheBytes = uint64_t(8) << 30;
  bool embedSources = false;  ///< keep the IR of every phase in the artifact
  bool timing = false;        ///< time of each phase to stderr
  std::string rebuildCommand; ///< what the artifact says when it is refused
  /// Is told, in a line for people, that the cache had nothing and phases run,
  /// and that the cache cannot keep what they made; may be empty.
  std::function<void(std::string_view)> note;
  /// The same for what is not as it was asked for.
  std::function<void(std::string_view)> warning;
};

struct CompileSummary {
  bool fromCache = false;
  double seconds = 0;
  int64_t artifactBytes = 0;
};

/// Errors are one line: what, where, what to do.
llvm::Expected<CompileSummary> compile(const CompileRequest &request);

} // namespace tessera
