#include "runtime/hal/host/HostCommandList.h"

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

StatusOr<std::optional<BadElement>> findInHost(const void *address,
                                               std::uint64_t bytes,
                                               artifact::ElementType type) {
  return findNotFinite({static_cast<const std::byte *>(address), bytes}, type);
}

} // namespace

HostCommandList::HostCommandList(std::string_view program, Commands commands,
                                 HostCollectives collectives,
                                 std::span<std::byte> arena,
                                 const RecordOptions &options,
                                 std::optional<std::uint8_t> prepareArena)
    : program(program), code(std::move(commands)),
      collectives(std::move(collectives)), arena(arena),
      prepareArena(prepareArena), check(options.checkFinite), walk(code) {
  // What a kernel leaves unwritten must not pass for its result.
  if (check)
    this->prepareArena = 0;
  if (options.profile)
    measured =
        std::make_unique<Profile>(program, code.steps, options.traceEvents);
}

Status HostCommandList::run() {
  walk.restart();
  if (prepareArena && !arena.empty())
    std::memset(arena.data(), *prepareArena, arena.size());
  while (const Command *command = walk.next())
    if (Status status = step(*command); !status.ok()) {
      collectives.settle();
      return status;
    }
  return Status::success();
}

Status HostCommandList::step(const Command &command) {
  const std::uint64_t start = measured ? now() : 0;
  Status status = execute(command);
  if (measured)
    measured->add(command.step, start, now());
  if (status.ok() && check && command.kind == Command::Kind::launch)
    status = checkWritten(code, code.launches[command.index], findInHost);
  if (status.ok())
    return status;
  return Status::error("program '{}': step {} ({}): {}", program, command.step,
                       code.steps[command.step].origin, status.message());
}

Status HostCommandList::execute(const Command &command) {
  const auto at = [&](std::uint32_t pointer) {
    return static_cast<std::byte *>(code.pointers[pointer]);
  };
  switch (command.kind) {
  case Command::Kind::launch:
    return launch(code.launches[command.index]);
  case Command::Kind::copy: {
    const CopyCommand &one = code.copies[command.index];
    copy(at(one.to), at(one.from), one.bytes);
    break;
  }
  case Command::Kind::fill: {
    const FillCommand &one = code.fills[command.index];
    fill(at(one.to), one.value, one.bytes);
    break;
  }
  case Command::Kind::collective: {
    const CollectiveCommand &one = code.collectives[command.index];
    return collectives.run(command.index, at(one.from), at(one.to),
                           at(one.rows));
  }
  case Command::Kind::wait:
    return collectives.wait(command.index);
  case Command::Kind::loopBegin:
  case Command::Kind::loopEnd:
    break; // never handed out by a walk
  }
  return Status::success();
}

} // namespace tessera::hal
