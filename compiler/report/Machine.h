// How long steps of a program take: measured, or at best by a roofline.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "hardware/Cluster.h"
#include "hardware/Gpus.h"
#include "hardware/Roofline.h"
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/KernelTable.h"
#include "runtime/support/Status.h"

namespace tessera::report {

/// The hardware whose ceilings bound a program.
struct Machine {
  std::string name;
  std::string source; ///< of the numbers: "data sheet", "measured", …
  hardware::Peaks peaks;
  double bytes = 0; ///< bytes per second of memory, read and written
  hardware::Link link;
  std::string linkName;
};

/// The median seconds of kernels, by name, as `tessera bench kernels --json`
/// measures them.
struct Measurements {
  Machine machine; ///< with the peaks and the bandwidth of the device
  std::string device, program;
  std::map<std::string, double, std::less<>> seconds;
};
/// Reads that file's text; errors name `path`.
StatusOr<Measurements> parseMeasurements(std::string_view text,
                                         const std::string &path);

/// A GPU by its data sheet: of artifact::boundingChip, as `inspect --kernels`
/// takes it.
Machine machineOf(const hardware::Chip &chip);
/// One GPU of a cluster, and its link to the next ones.
Machine machineOf(const planner::Cluster &cluster);
/// This machine: register-only multiply-adds, and copies between its cores and
/// its memory, each on all threads; takes half a second.
Machine measureThisMachine();

/// Seconds of each kind of step.
class StepClock {
public:
  StepClock(Machine machine, const Measurements *measured)
      : machine_(std::move(machine)), measured(measured) {}

  const Machine &machine() const { return machine_; }
  /// FLOP/s that bound a kernel.
  double peak(const artifact::Kernel &kernel) const;
  /// max(bytes / bandwidth, FLOPs / peak).
  double atBest(const artifact::Kernel &kernel, double flops,
                double bytes) const;
  /// Of one launch, if it was measured.
  std::optional<double> measuredSeconds(const artifact::Kernel &kernel) const;
  /// Of one launch: measured, or else at best.
  double seconds(const artifact::Launch &launch,
                 const artifact::Kernel &kernel) const;
  /// Of moving bytes from memory to memory.
  double copySeconds(double bytes) const { return 2 * bytes / machine_.bytes; }
  double fillSeconds(double bytes) const { return bytes / machine_.bytes; }
  /// Of one collective of `members` ranks: the link's latency for each message
  /// that follows another, and what a member sends over its bandwidth.
  double seconds(const artifact::Collective &one, double members) const;

private:
  Machine machine_;
  const Measurements *measured; ///< may be null
};

} // namespace tessera::report
