// A program as devices execute it: flat, with every address resolved.
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/Profile.h"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace tessera::hal {

/// One instruction. `index` selects from the list that its kind names; of a
/// wait, the collective that it ends.
struct Command {
  enum class Kind : std::uint8_t {
    launch,
    copy,
    fill,
    collective,
    wait,
    loopBegin,
    loopEnd
  };
  Kind kind;
  std::uint32_t index;
  std::uint32_t step; // into Commands.steps; unused by loops
};

/// One problem of a launch.
struct LaunchInstance {
  std::uint32_t firstPointer; // into Commands.pointers
  std::uint32_t firstBlock;   // in the launch's block range
  std::uint32_t endBlock;
  const std::int64_t *sizes; // in the artifact, or null
  const artifact::Instance *source;
};

struct LaunchCommand {
  const artifact::Kernel *kernel;
  std::uint32_t kernelIndex;                // into DeviceCode.kernels
  std::uint32_t firstInstance, endInstance; // into Commands.instances
  std::uint32_t blocks;                     // of all instances
};

struct CopyCommand {
  std::uint32_t from, to; // into Commands.pointers
  std::uint64_t bytes;
};

struct FillCommand {
  std::uint32_t to; // into Commands.pointers
  std::uint64_t bytes;
  std::uint8_t value;
};

struct CollectiveCommand {
  const artifact::Collective *source;
  std::uint32_t from, to; // into Commands.pointers
  std::uint32_t rows;     // the same; of exchange_rows alone, else `from`
};

/// A pointer that moves when a loop's iteration ends.
struct Advance {
  std::uint32_t pointer; // into Commands.pointers
  std::uint64_t stride;
};

struct LoopCommand {
  static constexpr std::uint32_t kNoCount = ~0u;
  std::uint64_t trip;                     // at most
  std::uint32_t count;                    // into Commands.pointers; kNoCount
  std::uint32_t firstCommand;             // of the body
  std::uint32_t endCommand;               // the loopEnd
  std::uint32_t firstAdvance, endAdvance; // into Commands.advances
};

struct Commands {
  std::vector<Command> commands;
  std::vector<LaunchCommand> launches;
  std::vector<LaunchInstance> instances;
  std::vector<CopyCommand> copies;
  std::vector<FillCommand> fills;
  std::vector<CollectiveCommand> collectives;
  std::vector<LoopCommand> loops;
  std::vector<Advance> advances;
  /// Addresses of every argument in the loops' first iterations.
  std::vector<void *> pointers;
  std::vector<ProfiledStep> steps;
};

/// Goes through a program's commands in the order of their execution. Advances
/// the addresses in Commands.pointers with the iterations. Allocates only in
/// the constructor.
class Walk {
public:
  /// Reads the count of a loop at an address of the device.
  using ReadCount = std::function<std::int32_t(const void *)>;
  /// `code` is not copied and must have its pointers as flatten() left them.
  /// With `visitsAll` a loop's iterations after its count are walked, too, but
  /// isIdle(): for devices that prepare every launch.
  explicit Walk(Commands &code, ReadCount readCount = countInMemory,
                bool visitsAll = false);
  static std::int32_t countInMemory(const void *address);
  /// Restarts from the beginning, wherever the last walk stopped.
  void restart();
  /// The next command other than a loop, null after the last one. Reads the
  /// counts of loops where the pointers say, after what was returned before.
  const Command *next();
  /// Whether what next() returned is in an iteration that does not take place.
  bool isIdle() const { return idle != LoopCommand::kNoCount; }

  /// An iteration of the outermost loop with a count around what next()
  /// returned.
  struct Counted {
    std::uint64_t loop = 0;      ///< from 1, in order; 0: in no such loop
    std::uint64_t iteration = 0; ///< from 0
    const void *count = nullptr; ///< the address of the count
    std::uint64_t trip = 0;      ///< iterations at most
    bool operator==(const Counted &) const = default;
  };
  const Counted &counted() const { return place; }

private:
  void beginLoop(std::uint32_t loop);
  void endIteration(std::uint32_t loop);

  Commands &code;
  ReadCount readCount;
  bool visitsAll;
  std::uint32_t idle = LoopCommand::kNoCount; // the loop that is past its count
  std::uint32_t outer = LoopCommand::kNoCount; // the loop of `place`
  std::uint64_t countedLoops = 0;              // that began
  Counted place;
  std::uint32_t position = 0;           // of the next command
  std::vector<void *> firstPointers;    // Commands.pointers at the start
  std::vector<std::uint64_t> trips;     // of each loop that is running
  std::vector<std::uint64_t> tripsLeft; // of each loop
  std::vector<std::uint64_t> idleTrips; // the last ones, after the count
};

/// Where a program's spaces lie: addresses of the device, which the host only
/// computes with.
struct SpaceAddresses {
  std::byte *state, *arena, *io;
};

/// Flattens `program`, one of `code`, of a validated artifact.
Commands flatten(const artifact::DeviceCode &code,
                 const artifact::Program &program,
                 const SpaceAddresses &spaces);

} // namespace tessera::hal
