// Runs one program of an artifact on tensors from files. Tests and oracles
// check what a compiled model computes this way.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The state starts as zeros and is changed in the order of the members below.
struct RunProgramOptions {
  std::string artifact; ///< a .tsr file, or an executable that carries one
  std::string program;  ///< "logits", "train_step", …

  std::optional<int64_t> init; ///< seed: runs "init" first
  std::string weights;         ///< Hugging Face safetensors: file or directory
  std::string checkpoint;      ///< RUN/step-000100, hyperparameters included
  std::vector<std::string> sets; ///< "optimizer.lr=3e-4"
  /// Safetensors with any of the state's tensors, under their names in the
  /// state.
  std::vector<std::string> states;

  /// Safetensors with exactly the program's inputs. A tensor with a leading
  /// dimension of `runs` has one value for each run; others are the same in all
  /// runs.
  std::string inputs;
  std::string outputs;   ///< written: with runs > 1, [runs, …] each
  std::string dumpState; ///< written: the whole state after the last run
  uint64_t runs = 1;

  std::string device = "cpu"; ///< as hal::createDevice takes it
  unsigned threads = 0;       ///< 0: all processors
  bool checkFinite = false;   ///< stop at the first kernel that writes NaN
};

/// Runs the program. Files are written last and atomically, so an error leaves
/// no partial file.
Status runProgram(const RunProgramOptions &options);

/// Whether the arguments after the artifact contain --program.
bool asksForProgram(int argc, const char *const *argv);

/// The command line: returns the exit code, as trainMain does.
int runProgramMain(int argc, const char *const *argv,
                   const std::string &artifactPath);

} // namespace tessera
