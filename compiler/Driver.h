// From a model spec to an artifact: runs the phases, dumps them on request,
// compiles kernels, writes the result. `tessera compile` is a thin shell on it.
#pragma once
#include "compiler/RankMemory.h"
#include "hardware/Roofline.h"
#include "llvm/ADT/ArrayRef.h"
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
  bool infer = false;     ///< inference programs instead of training programs
  /// With `infer`: @calibrate (models/Build.h) instead of these.
  bool calibrate = false;
  std::string runtime; ///< the prebuilt runtime to copy
  std::string mesh;    ///< "data=2,tensor=2,zero=1"; empty: one device
  int64_t world = 0;   ///< product of the axes; 0: any
  /// For which costs are estimated, on a mesh; absent: a default.
  std::optional<hardware::ClusterRates> cluster;
  /// As resolveTargets takes them; empty: those of the input, if it has
  /// kernels, or `defaultTargets`.
  std::vector<std::string> targets, defaultTargets = {"cpu"};
  const std::vector<std::string> &chosenTargets() const {
    return targets.empty() ? defaultTargets : targets;
  }
  bool emulate = true;     ///< also compile for the emulated GPU
  std::string dumpDir;     ///< one file per phase; empty: none
  bool dumpPasses = false; ///< also after each pass that changes the module
  /// Options of MLIR's pass manager: "--mlir-timing",
  /// "--mlir-print-ir-after=fuse" and so on.
  std::vector<std::string> mlirOptions;
  std::string from;  ///< continue after this phase with `input`
  std::string to;    ///< stop after this phase and write its IR to `output`
  std::string input; ///< .mlir, with `from`
  /// Stop after the phase planning and write nothing: for `accept`.
  bool onlyPlan = false;
  std::string cache = "on"; ///< on | off | redo | readonly
  /// That programs and kernels may take there; those that were used longest ago
  /// make room. 0: as `off`.
  uint64_t cacheBytes = kMostCacheBytes;
  static constexpr uint64_t kMostCacheBytes = uint64_t(8) << 30;
  bool embedSources = false;  ///< keep the IR of every phase in the artifact
  bool timing = false;        ///< time of each phase to stderr
  std::string rebuildCommand; ///< stored in the artifact, for error messages
  /// Receives messages: that the program was not cached and is compiled, and
  /// that the result cannot be cached; may be empty.
  std::function<void(std::string_view)> note;
  /// Receives the memory of each group of ranks and each kind of device before
  /// code is generated; its error ends the compilation. May be empty. Not asked
  /// if compilation stops before the phase planning.
  std::function<llvm::Error(llvm::ArrayRef<RankMemory>)> accept;
  /// Receives the module of each group of ranks, of which `rank` is the first,
  /// after the last phase. May be empty.
  std::function<void(mlir::ModuleOp, int64_t rank)> planned;
  /// One of many compilations whose results are not kept: on this thread alone,
  /// and without MLIR's verifier after each pass, which takes half of the time.
  /// The passes that verify a phase run.
  bool isTrial = false;
  /// Of a training module only @train_step and @init, from the phase partition
  /// on.
  bool onlyStep = false;
  /// Of a pipeline only the programs of these ranks; empty: of all.
  std::vector<int64_t> onlyStages;
  /// Receives warnings that a request was changed.
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
