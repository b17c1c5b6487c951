// The command line of a training executable.
#pragma once
#include "runtime/train/Train.h"

namespace tessera {

/// Parses the arguments. What is there to print (help, a wrong argument) is in
/// `message`; then `exitCode` is set and nothing is to be run.
struct TrainCommandLine {
  TrainOptions options;
  std::optional<int> exitCode;
  std::string message;
};
TrainCommandLine parseTrainCommand(int argc, const char *const *argv);

/// main() of a training executable: opens the artifact in `artifactPath` (the
/// executable itself, or a .tsr file), trains, and returns the exit code: 0
/// also when a signal ended the run, 1 with one line on standard error if
/// anything failed, 2 for a wrong command line.
int trainMain(int argc, const char *const *argv,
              const std::string &artifactPath);

} // namespace tessera
