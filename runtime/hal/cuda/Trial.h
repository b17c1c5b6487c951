// Runs a kernel on memory of its own, before the program does: to time it and
// whatever else could do its work, and to compare what they compute.
#pragma once
#include "runtime/hal/cuda/CudaCommandList.h"

#include <functional>
#include <string>
#include <vector>

namespace tessera::hal::cuda {

/// One way to do the work of a kernel.
struct Candidate {
  std::string name; ///< without white space
  /// Puts it on the stream, on those arguments; the context is current.
  std::function<Status(void *const *arguments)> enqueue;
};

class Trial {
public:
  /// Takes memory for the arguments of one instance of the launch, and for
  /// pushing them out of the L2 cache. They hold random numbers in [-1, 1).
  /// `kernels` follows DeviceCode.kernels and outlives the trial.
  static StatusOr<Trial> create(const std::shared_ptr<Gpu> &gpu,
                                const LaunchCommand &launch,
                                const LaunchInstance &instance,
                                std::span<const LoadedKernel> kernels);
  /// The kernel itself.
  Candidate generated() const;

  /// Once, waiting for it.
  Status run(const Candidate &candidate);
  /// Microseconds that it takes with nothing in the L2 cache: the median of
  /// five runs.
  StatusOr<double> time(const Candidate &candidate);
  /// A part of what it computes into argument `result` from the same numbers,
  /// spread over all of it.
  StatusOr<std::vector<float>> results(const Candidate &candidate,
                                       std::uint32_t result);

private:
  explicit Trial(std::shared_ptr<Gpu> gpu) : gpu(std::move(gpu)) {}
  Status record(const LaunchCommand &launch, const LaunchInstance &instance,
                std::span<const LoadedKernel> kernels);
  Status fill(std::uint32_t argument);
  /// Calls `body` with the context current; nothing is under way afterwards.
  Status settle(const std::function<Status()> &body);

  std::shared_ptr<Gpu> gpu;
  std::vector<Owned<Address>> memory;
  std::vector<std::uint64_t> bytes;
  std::vector<artifact::ElementType> types;
  std::vector<void *> arguments; ///< addresses of `memory`
  std::unique_ptr<CudaCommandList> launched;
  Owned<Address> cold;
  Owned<Event> start, end;
};

/// Whether two ways of adding up k products of numbers in [-1, 1) may differ as
/// `a` and `b` do: each rounds its sums, of about √k, some √k times to fp32,
/// and then to the type of the result.
bool agree(std::span<const float> a, std::span<const float> b, std::uint64_t k,
           artifact::ElementType type);

} // namespace tessera::hal::cuda
