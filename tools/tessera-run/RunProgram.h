// One program of an artifact, run on tensors from files: how tests, oracles and
// the curious look at what a compiled model computes.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The state is zero, then changed in the order of the members below.
struct RunProgramOptions {
  std::string artifact; ///< a .tsr file, or an executable that carries one
  std::string program;  ///< "logits", "train_step", …

  std::optional<int64_t> init; ///< seed: runs "init" first
  std::string weights;         ///< Hugging Face safetensors: file or directory
  std::string checkpoint;      ///< RUN/step-000100, hyperparameters included
  std::vector<std::string> sets; ///< "optimizer.lr=3e-4"
  /// Safetensors with any of the state's tensors under the state's own names.
  std::vector<std::string> states;

  /// Safetensors with exactly the program's inputs. One that has a dimension
  /// of `runs` in front gives a run its own value, others are the same in all.
  std::string inputs;
  std::string outputs;   ///< written: with runs > 1, [runs, …] each
  std::string dumpState; ///< written: the whole state after the last run
  uint64_t runs = 1;

  std::string device = "cpu"; ///< as hal::createDevice takes it
  unsigned threads = 0;       ///< 0: all processors
  bool checkFinite = false;   ///< stop at the first kernel that writes NaN
};

/// Runs it. Files are written last and whole, so an error leaves none behind.
Status runProgram(const RunProgramOptions &options);

/// Whether the arguments after the artifact ask for a program, not for
/// training.
bool asksForProgram(int argc, const char *const *argv);

/// The command line: returns the exit code, as trainMain does.
int runProgramMain(int argc, const char *const *argv,
                   const std::string &artifactPath);

} // namespace tessera
