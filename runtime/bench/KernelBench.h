// Every kernel of a program, timed by itself and set against the roofline.
#pragma once
#include "hardware/Gpus.h"
#include "runtime/artifact/ArtifactReader.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::bench {

struct KernelBenchOptions {
  /// As hal::createDevice takes it; empty: cuda:0 if the artifact has kernels
  /// for a GPU, otherwise cpu.
  std::string device;
  /// One of the artifact's; empty: what it is for, train_step if it has that,
  /// or else decode_1.
  std::string program;
  std::string filter;         ///< part of a kernel's name; empty: all
  std::uint64_t repeats = 20; ///< counted runs of each kernel
  unsigned threads = 0;       ///< of the device cpu; 0: all processors
  /// Written before each timed run, so that it finds the caches empty: several
  /// times the largest cache. Twice as much is copied to measure the memory. 0:
  /// the default of the device kind.
  std::uint64_t flushBytes = 0;
};

/// One kernel at one size; every measurement is of one launch.
struct KernelTime {
  std::string name, fused, origin;
  std::uint64_t launches = 0;  ///< in one run of the program
  double flops = 0, bytes = 0; ///< 0: unknown
  double seconds = 0;          ///< the median
  /// max(bytes / copy bandwidth, FLOPs / peak); 0: unknown.
  double roofSeconds = 0;
  bool boundByMemory = true;
  double all() const { return seconds * static_cast<double>(launches); }
};

struct KernelBenchResult {
  std::string device, target, program;
  /// Times of the emulated GPU are meaningless.
  bool emulated = false;
  /// The median of whole, unmodified runs of the program; 0: not measured.
  double programSeconds = 0;
  /// Read and written, by the device's own copy; 0: not measured.
  double copyBytesPerSecond = 0;
  hardware::Peaks peaks;
  std::string peaksFrom; ///< "data sheet of H200", "measured", or empty
  std::vector<KernelTime> kernels; ///< most of the program's time first
};

/// Runs `init` if the artifact has it, draws every other input at random, and
/// measures. State and results are meaningless afterwards.
StatusOr<KernelBenchResult> benchKernels(const ArtifactReader &artifact,
                                         const KernelBenchOptions &options);

/// A table for display, and the same as one JSON object.
std::string kernelBenchTable(const KernelBenchResult &result);
std::string kernelBenchJson(const KernelBenchResult &result);

/// The command line after "bench kernels": ARTIFACT, unless `artifact` is not
/// empty, and options. `command`: what the user typed up to there, which errors
/// begin with and point to; empty: as of a training executable. Returns the
/// exit code, as trainMain does.
int benchKernelsMain(int argc, const char *const *argv,
                     const std::string &artifact,
                     const std::string &command = "");

} // namespace tessera::bench
