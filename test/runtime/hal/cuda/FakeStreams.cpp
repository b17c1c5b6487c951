// The fake driver's streams, events and graphs.
#include "test/runtime/hal/cuda/FakeGpu.h"

namespace tessera::test {

extern "C" {

//===--- streams and events -----------------------------------------------===//

Result cuStreamCreate(Stream *stream, unsigned flags) {
  FAKE_ENTER(cuStreamCreate, kContext | kNoCapture);
  FAKE_REQUIRE(flags <= 1, "unknown flags of a stream", kInvalidValue);
  *stream = *all.streams.insert(new StreamTag).first;
  return kSuccess;
}

Result cuStreamDestroy_v2(Stream stream) {
  FAKE_ENTER(cuStreamDestroy_v2, kFree | kNoCapture);
  FAKE_REQUIRE(all.streams.contains(stream), "cuStreamDestroy of none",
               kInvalidHandle);
  FAKE_REQUIRE(stream->queue.empty() || all.sticky != kSuccess,
               "a stream is destroyed with work in it", kInvalidValue);
  return all.destroy(all.streams, stream, "cuStreamDestroy of none");
}

Result cuStreamSynchronize(Stream stream) {
  FAKE_ENTER(cuStreamSynchronize, kContext | kNoCapture);
  FAKE_REQUIRE(all.streams.contains(stream), "waiting for no stream",
               kInvalidHandle);
  return all.work(stream, [] { return false; });
}

Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  FAKE_ENTER(cuStreamBeginCapture_v2, kContext | kNoCapture);
  FAKE_REQUIRE(all.streams.contains(stream) && mode >= 0 && mode <= 2,
               "capture of no stream", kInvalidHandle);
  stream->capturing = true;
  stream->broken = false;
  stream->capturer = std::this_thread::get_id();
  return kSuccess;
}

Result cuStreamEndCapture(Stream stream, Graph *graph) {
  FakeGpus &all = FakeGpus::get();
  const std::lock_guard lock(all.mutex);
  if (const Result early = all.enter("cuStreamEndCapture", kContext);
      early != kSuccess) {
    // The capture has ended all the same.
    if (all.streams.contains(stream)) {
      stream->capturing = false;
      stream->captured.clear();
    }
    return early;
  }
  FAKE_REQUIRE(all.streams.contains(stream) && stream->capturing,
               "the end of no capture", kCaptureUnmatched);
  FAKE_REQUIRE(stream->capturer == std::this_thread::get_id(),
               "the end of another thread's capture", kCaptureWrongThread);
  stream->capturing = false;
  std::vector<Operation> captured = std::move(stream->captured);
  stream->captured.clear();
  *graph = nullptr;
  bool isWhole = true;
  for (Stream other : all.streams)
    if (other->joined == stream) {
      isWhole &= !other->unjoined;
      other->joined = nullptr;
      other->unjoined = false;
    }
  FAKE_REQUIRE(isWhole,
               "a capture ends that another stream has not come back to",
               kCaptureUnjoined);
  if (stream->broken)
    return kCaptureInvalidated;
  *graph = *all.graphs.insert(new GraphTag{std::move(captured)}).first;
  return kSuccess;
}

Result cuEventCreate(Event *event, unsigned flags) {
  FAKE_ENTER(cuEventCreate, kContext);
  FAKE_REQUIRE((flags & ~7u) == 0, "unknown flags of an event", kInvalidValue);
  *event = *all.events.insert(new EventTag{(flags & kEventDisableTiming) == 0})
                .first;
  return kSuccess;
}

Result cuEventDestroy_v2(Event event) {
  FAKE_ENTER(cuEventDestroy_v2, kFree);
  FAKE_REQUIRE(all.events.contains(event), "cuEventDestroy of none",
               kInvalidHandle);
  FAKE_REQUIRE(event->pending == 0 || all.sticky != kSuccess,
               "an event is destroyed that a stream has yet to reach",
               kInvalidValue);
  return all.destroy(all.events, event, "cuEventDestroy of none");
}

Result cuEventRecord(Event event, Stream stream) {
  FAKE_ENTER(cuEventRecord, kContext);
  FAKE_REQUIRE(all.events.contains(event) && all.streams.contains(stream),
               "no event or no stream to record it in", kInvalidHandle);
  event->capture = stream->capture();
  // A captured event cannot be waited for by the host, nor timed.
  FAKE_REQUIRE(!event->capture || !event->timing, "a timed event is captured",
               kCaptureUnsupported);
  event->stream = stream;
  if (event->capture)
    return kSuccess; // what is captured stays in order
  ++event->pending;
  return all.submit(stream, [&all, event] {
    --event->pending;
    event->reached = all.now();
    return Result(kSuccess);
  });
}

Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  FAKE_ENTER(cuStreamWaitEvent, kContext);
  FAKE_REQUIRE(all.streams.contains(stream) && all.events.contains(event) &&
                   flags == 0,
               "a stream waits for no event", kInvalidHandle);
  if (event->capture) {
    FAKE_REQUIRE(event->capture->capturing,
                 "a wait for an event of a capture that has ended",
                 kInvalidValue);
    if (stream != event->capture)
      stream->joined = event->capture;
    else
      event->stream->unjoined = false;
    return kSuccess;
  }
  FAKE_REQUIRE(!stream->capture(), "a capture waits for an event outside of it",
               kCaptureIsolation);
  if (!event->stream)
    return kSuccess;
  return all.submit(stream, [&all, event] {
    if (event->pending != 0)
      (void)all.work(
          event->stream, [event] { return event->pending == 0; },
          /*waits=*/false);
    all.memory.protect(true); // for what comes after it in its stream
    return event->pending == 0 ? Result(kSuccess) : Result(kNotReady);
  });
}

Result cuEventSynchronize(Event event) {
  FAKE_ENTER(cuEventSynchronize, kContext | kNoCapture);
  FAKE_REQUIRE(all.events.contains(event) && !event->capture,
               "waiting for no event", kInvalidHandle);
  if (!event->stream)
    return all.sticky;
  return all.work(event->stream, [event] { return event->pending == 0; });
}

Result cuEventElapsedTime(float *milliseconds, Event start, Event end) {
  FAKE_ENTER(cuEventElapsedTime, kContext);
  FAKE_REQUIRE(all.events.contains(start) && all.events.contains(end) &&
                   start->timing && end->timing && start->stream && end->stream,
               "the time between what are no recorded events", kInvalidHandle);
  FAKE_REQUIRE(start->pending == 0 && end->pending == 0,
               "the time of an event that was not reached", kNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->reached - start->reached)
          .count();
  return kSuccess;
}

//===--- graphs -----------------------------------------------------------===//

Result cuGraphInstantiateWithFlags(GraphRun *run, Graph graph,
                                   unsigned long long flags) {
  FAKE_ENTER(cuGraphInstantiateWithFlags, kContext | kNoCapture);
  FAKE_REQUIRE(all.graphs.contains(graph) && flags == 0,
               "no graph to instantiate", kInvalidValue);
  *run = *all.runs.insert(new GraphRunTag{graph->operations}).first;
  return kSuccess;
}

Result cuGraphUpload(GraphRun run, Stream stream) {
  FAKE_ENTER(cuGraphUpload, kContext | kNoCapture);
  FAKE_REQUIRE(all.runs.contains(run) && all.streams.contains(stream),
               "no graph or no stream to upload it in", kInvalidValue);
  return all.submit(stream, [&all, run] {
    if (all.runs.contains(run)) // it may go while it is on its way
      run->isUploaded = true;
    return Result(kSuccess);
  });
}

Result cuGraphLaunch(GraphRun run, Stream stream) {
  FAKE_ENTER(cuGraphLaunch, kContext | kNoCapture);
  FAKE_REQUIRE(all.runs.contains(run) && all.streams.contains(stream),
               "no graph or no stream to run it in", kInvalidValue);
  FAKE_REQUIRE(run->isUploaded,
               "the upload of a graph is left to its first run", kInvalidValue);
  for (const Operation &operation : run->operations)
    all.submit(stream, operation);
  return kSuccess;
}

Result cuGraphExecDestroy(GraphRun run) {
  FAKE_ENTER(cuGraphExecDestroy, kFree);
  return all.destroy(all.runs, run, "cuGraphExecDestroy of none");
}

Result cuGraphDestroy(Graph graph) {
  FAKE_ENTER(cuGraphDestroy, kFree);
  return all.destroy(all.graphs, graph, "cuGraphDestroy of none");
}

} // extern "C"

} // namespace tessera::test
