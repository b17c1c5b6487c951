#include "runtime/hal/cuda/CudaCommandList.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/host/FiniteCheck.h"
#include "runtime/hal/host/TensorBoxes.h"

#include <algorithm>
#include <array>
#include <limits>

namespace tessera::hal::cuda {
namespace {

constexpr std::uint64_t kMostBounceBytes = std::uint64_t(16) << 20;
/// Of a grid's first dimension.
constexpr std::uint32_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

bool overlap(Address a, Address b, std::uint64_t bytes) {
  return a != b && (a > b ? a - b : b - a) < bytes;
}

/// findNotFinite in device memory.
StatusOr<std::optional<BadElement>> findOnGpu(Gpu &gpu, const void *address,
                                              std::uint64_t bytes,
                                              artifact::ElementType type) {
  std::optional<BadElement> bad;
  std::uint64_t element = 0; // that a piece begins with
  const Status status =
      gpu.download(reinterpret_cast<std::uintptr_t>(address), bytes,
                   [&](std::span<const std::byte> piece) {
                     if (!bad) {
                       bad = findNotFinite(piece, type);
                       if (bad)
                         bad->index += element;
                     }
                     element += piece.size() / artifact::elementBytes(type);
                   });
  if (!status.ok())
    return status;
  return bad;
}

} // namespace

CudaCommandList::CudaCommandList(std::string_view program, Commands commands,
                                 GpuCollectives collectives,
                                 std::span<const LoadedKernel> kernels,
                                 std::shared_ptr<Gpu> onGpu,
                                 std::span<const std::byte> arena, Mode mode,
                                 const RecordOptions &options)
    : program(program), code(std::move(commands)),
      walk(
          code, [this](const void *at) { return countOnGpu(at); },
          /*visitsAll=*/true),
      collectives(std::move(collectives)), kernels(kernels),
      gpu(std::move(onGpu)), arena(arena), mode(mode),
      check(options.checkFinite) {
  if (check)
    this->mode = Mode::step;
  else if (options.profile && mode == Mode::graph)
    this->mode = Mode::stream;
  for (const Command &command : code.commands)
    if (command.kind == Command::Kind::launch)
      if (const LoadedKernel &kernel =
              kernels[code.launches[command.index].kernelIndex];
          kernel.product)
        code.steps[command.step].what = kernel.label;
  if (options.profile)
    measured =
        std::make_unique<Profile>(program, code.steps, options.traceEvents);
}

StatusOr<std::unique_ptr<CudaCommandList>> CudaCommandList::record(
    std::string_view program, Commands commands, GpuCollectives collectives,
    std::span<const LoadedKernel> kernels, std::shared_ptr<Gpu> gpu,
    std::span<const std::byte> arena, Mode mode, const RecordOptions &options) {
  std::unique_ptr<CudaCommandList> list(
      new CudaCommandList(program, std::move(commands), std::move(collectives),
                          kernels, std::move(gpu), arena, mode, options));
  Status status = list->prepare();
  if (status.ok())
    status = list->gpu->enter([&] {
      if (list->measured)
        TESSERA_RETURN_IF_ERROR(list->timer.create(list->gpu, *list->measured));
      return list->mode == Mode::graph ? list->capture() : Status::success();
    });
  list->readsCounts = true;
  if (!status.ok())
    return Status::error("program '{}': {}", program, status.message());
  return list;
}

Address CudaCommandList::address(std::uint32_t pointer) const {
  return reinterpret_cast<std::uintptr_t>(code.pointers[pointer]);
}

Status CudaCommandList::at(const Command &command, const Status &status) const {
  if (status.ok())
    return status;
  return Status::error("step {} ({}): {}", command.step,
                       code.steps[command.step].origin, status.message());
}

Status CudaCommandList::named(const Command &command,
                              const Status &status) const {
  if (status.ok())
    return status;
  const std::string_view what = code.steps[command.step].what;
  if (command.kind == Command::Kind::launch)
    return Status::error("kernel '{}': {}", what, status.message());
  return Status::error("{}: {}", what, status.message());
}

Status CudaCommandList::prepare() {
  std::uint64_t steps = 0; // of a graph; further iterations are its GPU's
  std::size_t mostWords = 0;
  walk.restart();
  while (const Command *command = walk.next()) {
    steps += walk.counted().iteration == 0;
    ++stepsOfAll;
    if (command->kind == Command::Kind::launch) {
      const LaunchCommand &one = code.launches[command->index];
      if (one.blocks > kMostBlocks)
        return at(
            *command,
            named(*command, Status::error("{} blocks exceed the {} of a grid",
                                          one.blocks, kMostBlocks)));
      tables.add(code, one);
      TESSERA_RETURN_IF_ERROR(
          at(*command, named(*command, maps.add(*gpu, code, one))));
      mostWords = std::max<std::size_t>(
          mostWords, one.kernel->access()->size() + mapsOf(*one.kernel) +
                         one.kernel->dynamic_sizes());
    } else if (command->kind == Command::Kind::copy) {
      const CopyCommand &one = code.copies[command->index];
      if (overlap(address(one.to), address(one.from), one.bytes))
        bounceBytes =
            std::max(bounceBytes, std::min(one.bytes, kMostBounceBytes));
    }
  }
  words.reserve(mostWords + 3); // first block, table, count
  if (mode == Mode::graph && (steps == 0 || steps > kMostGraphSteps ||
                              haveNestedCounts() || collectives.needsHost()))
    mode = Mode::stream;
  TESSERA_RETURN_IF_ERROR(tables.upload(gpu));
  TESSERA_RETURN_IF_ERROR(maps.upload(gpu));
  if (bounceBytes == 0)
    return Status::success();
  auto allocated = gpu->allocate(bounceBytes, "copies onto themselves");
  if (!allocated.ok())
    return allocated.status();
  bounce = allocated.take();
  return Status::success();
}

Status CudaCommandList::run() {
  const Driver &driver = gpu->driver();
  Status status = gpu->enter([&] {
    Status launched = collectives.begin();
    if (launched.ok())
      launched = mode == Mode::graph ? runGraphs() : runSteps();
    // After an error too: nothing is under way when this returns.
    const Result result = driver.streamSynchronize.result(gpu->stream());
    Status status =
        launched.ok() ? driver.streamSynchronize.check(result) : launched;
    if (!status.ok())
      collectives.settle(*gpu);
    else
      status = collectives.end();
    if (!isSticky(result) || mode == Mode::step)
      return status;
    return Status::error("{}; with TESSERA_CUDA=step it says which step fails",
                         status.message());
  });
  if (status.ok())
    return status;
  return Status::error("program '{}': {}", program, status.message());
}

Status CudaCommandList::runSteps() {
  // What a kernel leaves unwritten must not pass for its result.
  if (check && !arena.empty())
    TESSERA_RETURN_IF_ERROR(
        gpu->driver().fill(reinterpret_cast<std::uintptr_t>(arena.data()), 0,
                           arena.size(), gpu->stream()));
  if (mode == Mode::stream && !measured)
    return enqueueAll();
  restart();
  timer.restart();
  while (const Command *command = walk.next()) {
    TESSERA_RETURN_IF_ERROR(counted);
    if (walk.isIdle())
      pass(*command);
    else
      TESSERA_RETURN_IF_ERROR(at(*command, runStep(*command)));
  }
  TESSERA_RETURN_IF_ERROR(counted);
  return measured ? timer.collect() : Status::success();
}

Status CudaCommandList::runStep(const Command &command) {
  if (measured)
    TESSERA_RETURN_IF_ERROR(timer.start(command.step));
  TESSERA_RETURN_IF_ERROR(enqueue(command));
  if (measured)
    TESSERA_RETURN_IF_ERROR(timer.stop());
  return mode == Mode::step ? finishStep(command) : Status::success();
}

Status CudaCommandList::finishStep(const Command &command) {
  TESSERA_RETURN_IF_ERROR(
      named(command, gpu->driver().streamSynchronize(gpu->stream())));
  if (!check || command.kind != Command::Kind::launch)
    return Status::success();
  return checkWritten(code, code.launches[command.index],
                      [&](const void *address, std::uint64_t bytes,
                          artifact::ElementType type) {
                        return findOnGpu(*gpu, address, bytes, type);
                      });
}

Status CudaCommandList::enqueueAll() {
  restart();
  while (const Command *command = walk.next()) {
    TESSERA_RETURN_IF_ERROR(counted);
    if (walk.isIdle())
      pass(*command);
    else
      TESSERA_RETURN_IF_ERROR(at(*command, enqueue(*command)));
  }
  return counted;
}

// Of the walk and what was prepared for its launches.
void CudaCommandList::restart() {
  walk.restart();
  tables.restart();
  maps.restart();
  counted = Status::success();
}

// Waits for the stream.
StatusOr<std::int32_t> CudaCommandList::download(const void *count) {
  std::int32_t value = 0;
  TESSERA_RETURN_IF_ERROR(gpu->download(
      std::as_writable_bytes(std::span(&value, 1)),
      static_cast<Address>(reinterpret_cast<std::uintptr_t>(count))));
  return value;
}

// How often a loop runs is data. The host has to know it; until all is
// recorded, every iteration takes place.
std::int32_t CudaCommandList::countOnGpu(const void *at) {
  if (!readsCounts)
    return std::numeric_limits<std::int32_t>::max();
  const auto count = download(at);
  counted = count.status();
  return count.ok() ? *count : 0;
}

// What was prepared for a step that does not take place.
void CudaCommandList::pass(const Command &command) {
  if (command.kind != Command::Kind::launch)
    return;
  const LaunchCommand &launch = code.launches[command.index];
  (void)tables.next(launch);
  (void)maps.next(launch);
}

Status CudaCommandList::enqueue(const Command &command) {
  switch (command.kind) {
  case Command::Kind::launch:
    return named(command, launch(code.launches[command.index]));
  case Command::Kind::copy:
    return named(command, copy(code.copies[command.index]));
  case Command::Kind::fill:
    return named(command, fill(code.fills[command.index]));
  case Command::Kind::collective: {
    const CollectiveCommand &one = code.collectives[command.index];
    return named(command,
                 collectives.run(command.index, *gpu, address(one.from),
                                 address(one.to), address(one.rows)));
  }
  case Command::Kind::wait:
    return named(command,
                 collectives.wait(command.index, *gpu,
                                  address(code.collectives[command.index].to)));
  case Command::Kind::loopBegin:
  case Command::Kind::loopEnd:
    break; // never handed out by a walk
  }
  return Status::success();
}

Status CudaCommandList::launch(const LaunchCommand &launch) {
  const Address table = tables.next(launch), firstMap = maps.next(launch);
  if (launch.blocks == 0)
    return Status::success();
  const LoadedKernel &kernel = kernels[launch.kernelIndex];
  if (kernel.product) {
    for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i)
      TESSERA_RETURN_IF_ERROR(kernel.product->enqueue(
          kernel.way, &code.pointers[code.instances[i].firstPointer]));
    return Status::success();
  }
  words.clear();
  appendInstance(code, launch, code.instances[launch.firstInstance], words,
                 firstMap, mapsOf(*launch.kernel));
  words.push_back(table);
  words.push_back(launch.endInstance - launch.firstInstance);
  // The driver copies the arguments before it returns.
  std::size_t bytes = words.size() * sizeof(std::uint64_t);
  std::array<void *, 5> arguments = {kLaunchBuffer, words.data(),
                                     kLaunchBufferSize, &bytes, kLaunchEnd};
  return gpu->driver().launch(kernel.function, launch.blocks, 1, 1,
                              kernel.threads, 1, 1, kernel.sharedBytes,
                              gpu->stream(), nullptr, arguments.data());
}

Status CudaCommandList::copy(const CopyCommand &copy) {
  const auto &move = gpu->driver().copyOnDevice;
  const Address to = address(copy.to), from = address(copy.from);
  if (copy.bytes == 0 || to == from)
    return Status::success();
  if (!overlap(to, from, copy.bytes))
    return move(to, from, copy.bytes, gpu->stream());
  // In pieces that are read as a whole before they are written, from the end
  // that the copy moves towards: as memmove.
  for (std::uint64_t done = 0; done < copy.bytes;) {
    const std::uint64_t piece = std::min(bounceBytes, copy.bytes - done);
    const std::uint64_t offset = to > from ? copy.bytes - done - piece : done;
    TESSERA_RETURN_IF_ERROR(
        move(bounce.get(), from + offset, piece, gpu->stream()));
    TESSERA_RETURN_IF_ERROR(
        move(to + offset, bounce.get(), piece, gpu->stream()));
    done += piece;
  }
  return Status::success();
}

Status CudaCommandList::fill(const FillCommand &fill) {
  if (fill.bytes == 0)
    return Status::success();
  return gpu->driver().fill(address(fill.to), fill.value, fill.bytes,
                            gpu->stream());
}

} // namespace tessera::hal::cuda
