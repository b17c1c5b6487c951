// A command list as graphs: one whose loops the GPU counts, or pieces between
// which the host does.
#include "runtime/hal/cuda/CudaCommandList.h"

#include <algorithm>

namespace tessera::hal::cuda {

static bool isCounted(const LoopCommand &loop) {
  return loop.count != LoopCommand::kNoCount;
}

// Whether one loop whose count is data is in another: the count of the inner
// one is not known before the outer one runs, and iterations are captured
// alone.
bool CudaCommandList::haveNestedCounts() const {
  return std::ranges::any_of(code.loops, [&](const LoopCommand &outer) {
    return isCounted(outer) &&
           std::ranges::any_of(code.loops, [&](const LoopCommand &inner) {
             return isCounted(inner) && &inner != &outer &&
                    inner.firstCommand >= outer.firstCommand &&
                    inner.endCommand < outer.endCommand;
           });
  });
}

Status CudaCommandList::capture() {
  const bool hasCounts = std::ranges::any_of(code.loops, isCounted);
  if (hasCounts)
    TESSERA_RETURN_IF_ERROR(captureLoops());
  if (segments.empty() && stepsOfAll > kMostGraphSteps) {
    mode = Mode::stream;
  } else if (segments.empty()) {
    restart();
    const Command *command = walk.next();
    while (command)
      TESSERA_RETURN_IF_ERROR(captureSegment(command));
  }
  return gpu->driver().streamSynchronize(gpu->stream());
}

// One graph of all, with counts that the GPU reads; or none, and why not.
Status CudaCommandList::captureLoops() {
  if (!gpu->driver().hasLoopsInGraphs()) {
    countsOnHost = fmt::format(
        "graphs of the driver, for CUDA {}, have no loops before 12.4",
        versionText(gpu->driver().cudaVersion()));
    return Status::success();
  }
  if (std::ranges::any_of(code.loops, [](const LoopCommand &loop) {
        return isCounted(loop) && loop.firstAdvance != loop.endAdvance;
      })) {
    countsOnHost = "addresses advance with the iterations";
    return Status::success();
  }
  loops = std::make_unique<GraphLoops>(gpu);
  TESSERA_RETURN_IF_ERROR(loops->create(countedRuns()));
  restart();
  const Command *command = walk.next();
  while (command && loops->obstacle().empty())
    TESSERA_RETURN_IF_ERROR(walk.counted().loop == 0 ? capturePiece(command)
                                                     : captureLoop(command));
  countsOnHost = loops->obstacle();
  if (!countsOnHost.empty()) {
    loops.reset();
    return Status::success();
  }
  auto run = loops->instantiate();
  if (!run.ok())
    return run.status();
  segments.push_back({run.take(), {}});
  return Status::success();
}

// How many loops with a count begin in a run.
std::uint64_t CudaCommandList::countedRuns() {
  std::uint64_t last = 0;
  walk.restart();
  while (walk.next())
    last = std::max(last, walk.counted().loop);
  return last;
}

// A part of the program between loops with counts.
Status CudaCommandList::capturePiece(const Command *&command) {
  TESSERA_RETURN_IF_ERROR(loops->beginPiece());
  return loops->endPiece(enqueueSamePlace(command));
}

// The first iteration is captured, as the body of all.
Status CudaCommandList::captureLoop(const Command *&command) {
  const Walk::Counted first = walk.counted();
  TESSERA_RETURN_IF_ERROR(loops->beginLoop(
      reinterpret_cast<std::uintptr_t>(first.count), first.trip));
  TESSERA_RETURN_IF_ERROR(loops->endLoop(enqueueSamePlace(command)));
  for (; command && walk.counted().loop == first.loop; command = walk.next())
    pass(*command);
  return Status::success();
}

// Up to another iteration of a loop with a count, or the end of the program.
Status CudaCommandList::enqueueSamePlace(const Command *&command) {
  const Walk::Counted place = walk.counted();
  Status captured = Status::success();
  while (command && captured.ok() && walk.counted() == place) {
    captured = at(*command, enqueue(*command));
    command = walk.next();
  }
  return captured.ok() ? collectives.join(*gpu) : captured;
}

// From `command` to the end of the program, or of the iteration of a loop with
// a count; or to the next one. `command` is then the first one after it.
Status CudaCommandList::captureSegment(const Command *&command) {
  const Driver &driver = gpu->driver();
  const Walk::Counted place = walk.counted();
  // Other threads may do as they like meanwhile.
  TESSERA_RETURN_IF_ERROR(
      driver.streamBeginCapture(gpu->stream(), kCaptureThreadLocal));
  const Status captured = enqueueSamePlace(command);
  // After an error too, or the stream would stay in capture mode.
  Graph made = nullptr;
  const Status ended = driver.streamEndCapture(gpu->stream(), &made);
  const Owned<Graph> owned =
      made ? Owned<Graph>(gpu, made, driver.graphDestroy) : Owned<Graph>();
  TESSERA_RETURN_IF_ERROR(captured);
  TESSERA_RETURN_IF_ERROR(ended);
  GraphRun run = nullptr;
  TESSERA_RETURN_IF_ERROR(driver.graphInstantiate(&run, made, 0));
  segments.push_back(
      {Owned<GraphRun>(gpu, run, driver.graphRunDestroy), place});
  // So that the first run is as fast as all others.
  return driver.graphUpload(run, gpu->stream());
}

Status CudaCommandList::runGraphs() {
  const Driver &driver = gpu->driver();
  std::uint64_t loop = 0;
  std::int32_t count = 0;
  for (const Segment &segment : segments) {
    if (segment.place.loop != 0 && segment.place.loop != loop) {
      auto read = download(segment.place.count);
      if (!read.ok())
        return read.status();
      loop = segment.place.loop;
      count = *read;
    }
    if (segment.place.loop == 0 ||
        std::int64_t(segment.place.iteration) < count)
      TESSERA_RETURN_IF_ERROR(
          driver.graphLaunch(segment.graph.get(), gpu->stream()));
  }
  return Status::success();
}

} // namespace tessera::hal::cuda
