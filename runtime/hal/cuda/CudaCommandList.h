// A program on a GPU's stream: step by step, or captured once as a graph.
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/cuda/Code.h"
#include "runtime/hal/cuda/GpuCollectives.h"
#include "runtime/hal/cuda/GraphLoops.h"
#include "runtime/hal/cuda/InstanceTables.h"
#include "runtime/hal/cuda/StepTimer.h"
#include "runtime/hal/cuda/TensorMaps.h"
#include "runtime/hal/host/Commands.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::hal::cuda {

/// How steps reach the GPU.
enum class Mode : std::uint8_t {
  graph,  ///< as a graph that was captured when it was recorded, or several
          ///< if the host has to count iterations (countsOnHost)
  stream, ///< one call of the driver each
  step,   ///< the same, waiting for each: errors name the step
};

/// With more steps than this a graph costs more memory than it saves time.
inline constexpr std::uint64_t kMostGraphSteps = 100'000;

class CudaCommandList : public CommandList {
public:
  /// `commands` has the GPU's addresses; `kernels` follows DeviceCode.kernels
  /// and outlives the list; `collectives` are those of `commands`. A profile
  /// and the check for NaN take steps one by one, whatever `mode` says; so do
  /// collectives that go through the host, and programs of more than 100'000
  /// steps (of a loop that the GPU counts, one iteration), for which a graph
  /// would cost more memory than it saves time. Then the host waits for the
  /// count before a loop whose count is data.
  static StatusOr<std::unique_ptr<CudaCommandList>>
  record(std::string_view program, Commands commands,
         GpuCollectives collectives, std::span<const LoadedKernel> kernels,
         std::shared_ptr<Gpu> gpu, std::span<const std::byte> arena, Mode mode,
         const RecordOptions &options);
  Status run() override;
  /// Enqueues every step on the stream. Allocates nothing and, unless
  /// collectives or counts of loops need the host, waits for nothing, so all of
  /// it can be captured, including library calls. The context must be current.
  Status enqueueAll();
  const Profile *profile() const override { return measured.get(); }
  /// Why the host reads counts of loops although the program is a graph: a
  /// graph for each iteration then; empty if it does not.
  const std::string &whyCountsOnHost() const { return countsOnHost; }

private:
  CudaCommandList(std::string_view program, Commands commands,
                  GpuCollectives collectives,
                  std::span<const LoadedKernel> kernels,
                  std::shared_ptr<Gpu> gpu, std::span<const std::byte> arena,
                  Mode mode, const RecordOptions &options);
  /// Takes what enqueue() needs besides the program's spaces.
  Status prepare();
  bool haveNestedCounts() const;
  Status capture();
  Status captureLoops();
  std::uint64_t countedRuns();
  Status capturePiece(const Command *&command);
  Status captureLoop(const Command *&command);
  Status captureSegment(const Command *&command);
  Status enqueueSamePlace(const Command *&command);
  Status runGraphs();
  void restart();
  Status runSteps();
  Status runStep(const Command &command);
  Status finishStep(const Command &command);

  std::int32_t countOnGpu(const void *at);
  StatusOr<std::int32_t> download(const void *count);
  void pass(const Command &command);

  /// Puts a step on the stream; like enqueueAll(), it can be captured.
  Status enqueue(const Command &command);
  Status launch(const LaunchCommand &launch);
  Status copy(const CopyCommand &copy);
  Status fill(const FillCommand &fill);

  /// `status` with the place in the program in front, or the kernel's name.
  Status at(const Command &command, const Status &status) const;
  Status named(const Command &command, const Status &status) const;
  Address address(std::uint32_t pointer) const;

  std::string_view program;
  Commands code;
  Walk walk; // through `code`
  GpuCollectives collectives;
  std::span<const LoadedKernel> kernels;
  std::shared_ptr<Gpu> gpu;
  std::span<const std::byte> arena; // addresses of the GPU
  Mode mode;
  bool check;                         // for NaN
  bool readsCounts = false;           ///< otherwise all iterations take place
  Status counted = Status::success(); ///< of the last count that was read
  InstanceTables tables;
  TensorMaps maps;
  std::vector<std::uint64_t> words; // of the launch that is being made
  Owned<Address> bounce;            // for copies onto themselves
  std::uint64_t bounceBytes = 0;
  std::uint64_t stepsOfAll = 0; ///< iterations that there may be
  /// Commands that run together, or not at all.
  struct Segment {
    Owned<GraphRun> graph;
    Walk::Counted place; ///< the iteration that they are
  };
  std::unique_ptr<GraphLoops> loops; ///< of the only segment; or null
  std::vector<Segment> segments;     ///< use its memory
  std::string countsOnHost;
  std::unique_ptr<Profile> measured;
  StepTimer timer;
};

} // namespace tessera::hal::cuda
