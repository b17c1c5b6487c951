// Runs a kernel on separate memory, before the program does: to time it and its
// alternatives, and to compare their results.
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

/// Of each argument that a kernel writes: a part, spread over all of it.
struct Written {
  artifact::ElementType type;
  std::vector<float> values;
};
using Results = std::vector<Written>;

class Trial {
public:
  /// Takes memory for the arguments of one instance of the launch, and for
  /// pushing them out of the L2 cache. Float arguments hold random numbers in
  /// [-1, 1), others zeros.
  /// `kernels` follows DeviceCode.kernels and outlives the trial.
  static StatusOr<Trial> create(const std::shared_ptr<Gpu> &gpu,
                                const LaunchCommand &launch,
                                const LaunchInstance &instance,
                                std::span<const LoadedKernel> kernels);
  /// A generated kernel, itself or a variant; `launch` has the same arguments.
  StatusOr<Candidate> generated(std::string name, const LaunchCommand &launch);

  /// Once, waiting for it.
  Status run(const Candidate &candidate);
  /// Microseconds that it takes with nothing in the L2 cache: the median of
  /// five runs.
  StatusOr<double> time(const Candidate &candidate);
  /// What it computes from the same numbers.
  StatusOr<Results> results(const Candidate &candidate);

private:
  Trial(std::shared_ptr<Gpu> gpu, const LaunchInstance &instance,
        std::span<const LoadedKernel> kernels)
      : gpu(std::move(gpu)), instance(instance), kernels(kernels) {}
  Status makeEvents();
  StatusOr<std::vector<float>> sample(std::uint32_t argument);
  Status fill(std::uint32_t argument);
  /// Calls `body` with the context current, then waits until nothing is in
  /// flight.
  Status settle(const std::function<Status()> &body);

  std::shared_ptr<Gpu> gpu;
  LaunchInstance instance;
  std::span<const LoadedKernel> kernels;
  std::vector<Owned<Address>> memory;
  std::vector<std::uint64_t> bytes;
  std::vector<artifact::ElementType> types;
  std::vector<std::uint32_t> written; ///< which arguments the kernel writes
  std::vector<void *> arguments;      ///< addresses of `memory`
  std::vector<std::unique_ptr<CudaCommandList>> launched; ///< one a candidate
  Owned<Address> cold;
  Owned<Event> start, end;
};

/// Whether `a` and `b` differ by no more than two orders of adding k products
/// of numbers in [-1, 1) may: each rounds its sums, of about √k, some √k times
/// to fp32, and then to the type of the result.
bool agree(const Results &a, const Results &b, std::uint64_t k);

} // namespace tessera::hal::cuda
