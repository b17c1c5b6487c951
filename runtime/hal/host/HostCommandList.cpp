#include "runtime/hal/host/HostCommandList.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/host/FiniteCheck.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tessera::hal {
namespace {

std::uint64_t now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

} // namespace

HostCommandList::HostCommandList(std::string_view program, Commands commands,
                                 std::span<std::byte> arena,
                                 const RecordOptions &options,
                                 std::optional<std::uint8_t> prepareArena)
    : program(program), code(std::move(commands)), arena(arena),
      prepareArena(prepareArena), check(options.checkFinite),
      firstPointers(code.pointers), tripsLeft(code.loops.size()) {
  // What a kernel leaves unwritten must not pass for its result.
  if (check)
    this->prepareArena = 0;
  if (options.profile)
    measured =
        std::make_unique<Profile>(program, code.steps, options.traceEvents);
}

Status HostCommandList::run() {
  // A run that an error cut short left pointers inside loops.
  std::copy(firstPointers.begin(), firstPointers.end(), code.pointers.begin());
  if (prepareArena && !arena.empty())
    std::memset(arena.data(), *prepareArena, arena.size());
  for (std::uint32_t next = 0; next < code.commands.size();) {
    const Command &command = code.commands[next++];
    if (command.kind == Command::Kind::loopBegin)
      tripsLeft[command.index] = code.loops[command.index].trip;
    else if (command.kind == Command::Kind::loopEnd)
      next = loopEnd(command.index, next);
    else
      TESSERA_RETURN_IF_ERROR(step(command));
  }
  return Status::success();
}

std::uint32_t HostCommandList::loopEnd(std::uint32_t index,
                                       std::uint32_t next) {
  const LoopCommand &loop = code.loops[index];
  const bool again = --tripsLeft[index] != 0;
  for (std::uint32_t i = loop.firstAdvance; i < loop.endAdvance; ++i) {
    const Advance &advance = code.advances[i];
    void *&pointer = code.pointers[advance.pointer];
    auto *address = static_cast<std::byte *>(pointer);
    pointer = again ? address + advance.stride
                    : address - advance.stride * (loop.trip - 1);
  }
  return again ? loop.firstCommand : next;
}

Status HostCommandList::step(const Command &command) {
  const std::uint64_t start = measured ? now() : 0;
  Status status = execute(command);
  if (measured)
    measured->add(command.step, start, now());
  if (status.ok() && check && command.kind == Command::Kind::launch)
    status = checkFinite(code.launches[command.index]);
  if (status.ok())
    return status;
  return Status::error("program '{}': step {} ({}): {}", program, command.step,
                       code.steps[command.step].origin, status.message());
}

Status HostCommandList::execute(const Command &command) {
  const auto at = [&](std::uint32_t pointer) {
    return static_cast<std::byte *>(code.pointers[pointer]);
  };
  if (command.kind == Command::Kind::launch)
    return launch(code.launches[command.index]);
  if (command.kind == Command::Kind::copy) {
    const CopyCommand &one = code.copies[command.index];
    copy(at(one.to), at(one.from), one.bytes);
  } else {
    const FillCommand &one = code.fills[command.index];
    fill(at(one.to), one.value, one.bytes);
  }
  return Status::success();
}

Status HostCommandList::checkFinite(const LaunchCommand &launch) const {
  const artifact::Kernel &kernel = *launch.kernel;
  if (!kernel.element_types())
    return Status::success();
  for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i) {
    const LaunchInstance &one = code.instances[i];
    for (std::uint32_t arg = 0; arg < kernel.access()->size(); ++arg) {
      if (kernel.access()->Get(arg) == artifact::Access::read)
        continue;
      const artifact::ElementType type = kernel.element_types()->Get(arg);
      const std::span<const std::byte> bytes(
          static_cast<const std::byte *>(code.pointers[one.firstPointer + arg]),
          one.source->args()->Get(arg)->bytes());
      if (const auto bad = findNotFinite(bytes, type))
        return Status::error(
            "kernel '{}' wrote {} at element {} of argument {} ({}), instance "
            "{}",
            artifact::toView(kernel.name()), bad->isNan ? "NaN" : "infinity",
            bad->index, arg, artifact::EnumNameElementType(type),
            i - launch.firstInstance);
    }
  }
  return Status::success();
}

} // namespace tessera::hal
