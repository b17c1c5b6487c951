// The fake driver's streams, events and graphs.
#include "test/runtime/hal/cuda/FakeGpu.h"

#include <algorithm>

namespace tessera::hal::cuda {

GraphTag::~GraphTag() {
  for (GraphNode node : nodes) {
    test::FakeGpus::get().bodies.erase(node->body);
    delete node->body;
    delete node;
  }
}

} // namespace tessera::hal::cuda

namespace tessera::test {

static void forget(std::vector<GraphNode> &captured) {
  for (GraphNode node : captured)
    delete node;
  captured.clear();
}

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
  stream->into = nullptr;
  stream->capturer = std::this_thread::get_id();
  return kSuccess;
}

static bool isGraph(const FakeGpus &all, Graph graph) {
  return all.graphs.contains(graph) || all.bodies.contains(graph);
}

// Whether `after` is the end of what the graph has so far: nothing in it is
// concurrent with anything.
static bool isEnd(Graph graph, const GraphNode *after, const GraphEdge *edges,
                  std::size_t count) {
  if (graph->nodes.empty())
    return count == 0;
  return count == 1 && after && edges && after[0] == graph->nodes.back() &&
         edges[0].type == 0;
}

Result cuStreamBeginCaptureToGraph(Stream stream, Graph graph,
                                   const GraphNode *after,
                                   const GraphEdge *edges, std::size_t count,
                                   int mode) {
  FAKE_ENTER(cuStreamBeginCaptureToGraph, kContext | kNoCapture);
  FAKE_REQUIRE(all.streams.contains(stream) && mode >= 0 && mode <= 2,
               "capture of no stream", kInvalidHandle);
  FAKE_REQUIRE(isGraph(all, graph) && isEnd(graph, after, edges, count),
               "capture into no graph, or not at its end", kInvalidValue);
  stream->capturing = true;
  stream->broken = false;
  stream->into = graph;
  stream->capturer = std::this_thread::get_id();
  return kSuccess;
}

Result cuStreamGetCaptureInfo_v3(Stream stream, int *status,
                                 unsigned long long *id, Graph *graph,
                                 const GraphNode **last,
                                 const GraphEdge **edges, std::size_t *count) {
  FAKE_ENTER(cuStreamGetCaptureInfo_v3, kContext);
  FAKE_REQUIRE(all.streams.contains(stream), "capture of no stream",
               kInvalidHandle);
  static const GraphEdge whole = {};
  *status = stream->capturing ? 1 : 0;
  *id = 1;
  *graph = stream->into;
  *edges = &whole;
  *count = 0;
  const std::vector<GraphNode> *nodes = !stream->captured.empty()
                                            ? &stream->captured
                                        : stream->into ? &stream->into->nodes
                                                       : nullptr;
  if (nodes && !nodes->empty()) {
    *last = &nodes->back();
    *count = 1;
  }
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
      forget(stream->captured);
    }
    return early;
  }
  FAKE_REQUIRE(all.streams.contains(stream) && stream->capturing,
               "the end of no capture", kCaptureUnmatched);
  FAKE_REQUIRE(stream->capturer == std::this_thread::get_id(),
               "the end of another thread's capture", kCaptureWrongThread);
  stream->capturing = false;
  std::vector<GraphNode> captured = std::move(stream->captured);
  stream->captured.clear();
  *graph = nullptr;
  bool isWhole = true;
  for (Stream other : all.streams)
    if (other->joined == stream) {
      isWhole &= !other->unjoined;
      other->joined = nullptr;
      other->unjoined = false;
    }
  if (!isWhole || stream->broken)
    forget(captured);
  FAKE_REQUIRE(isWhole,
               "a capture ends that another stream has not come back to",
               kCaptureUnjoined);
  if (stream->broken)
    return kCaptureInvalidated;
  *graph = stream->into ? stream->into : *all.graphs.insert(new GraphTag).first;
  (*graph)->nodes.insert((*graph)->nodes.end(), captured.begin(),
                         captured.end());
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

Result cuGraphCreate(Graph *graph, unsigned flags) {
  FAKE_ENTER(cuGraphCreate, kContext);
  FAKE_REQUIRE(flags == 0, "unknown flags of a graph", kInvalidValue);
  *graph = *all.graphs.insert(new GraphTag).first;
  return kSuccess;
}

Result cuGraphConditionalHandleCreate(Condition *condition, Graph graph,
                                      Context context, unsigned initial,
                                      unsigned flags) {
  FAKE_ENTER(cuGraphConditionalHandleCreate, kContext);
  FAKE_REQUIRE(isGraph(all, graph) && initial == 0 && flags == 0 &&
                   context == currentContexts().back(),
               "a condition of no graph", kInvalidValue);
  static Condition made = 0;
  *condition = ++made;
  all.conditions[made] = initial;
  return kSuccess;
}

// The body as often as the condition says, which the GPU reads. An operation
// that waits for another GPU goes on where it was.
static Operation repeat(FakeGpus &all, Condition condition, Graph body) {
  return [&all, condition, body, at = std::make_shared<std::size_t>(0)] {
    while (*at != 0 || all.conditions[condition] != 0) {
      for (; *at < body->nodes.size(); ++*at)
        if (const Result result = body->nodes[*at]->operation();
            result != kSuccess)
          return result;
      *at = 0;
    }
    return Result(kSuccess);
  };
}

Result cuGraphAddNode_v2(GraphNode *node, Graph graph, const GraphNode *after,
                         const GraphEdge *edges, std::size_t count,
                         ConditionalNode *parameters) {
  FAKE_ENTER(cuGraphAddNode_v2, kContext);
  FAKE_REQUIRE(isGraph(all, graph) && isEnd(graph, after, edges, count),
               "a node of no graph, or not at its end", kInvalidValue);
  FAKE_REQUIRE(parameters->type == kConditionalNode &&
                   parameters->kind == kWhile && parameters->bodyCount == 1 &&
                   parameters->context == currentContexts().back() &&
                   all.conditions.contains(parameters->condition),
               "a node other than a loop", kInvalidValue);
  auto *body = new GraphTag{.isBody = true};
  all.bodies.insert(body);
  *node = new GraphNodeTag{
      repeat(all, parameters->condition, body), kConditionalNode, body, {body}};
  parameters->bodies = (*node)->bodies;
  graph->nodes.push_back(*node);
  return kSuccess;
}

Result cuGraphGetNodes(Graph graph, GraphNode *nodes, std::size_t *count) {
  FAKE_ENTER(cuGraphGetNodes, kContext);
  FAKE_REQUIRE(isGraph(all, graph), "the nodes of no graph", kInvalidValue);
  if (nodes)
    std::copy_n(graph->nodes.begin(), std::min(*count, graph->nodes.size()),
                nodes);
  *count = graph->nodes.size();
  return kSuccess;
}

Result cuGraphNodeGetType(GraphNode node, int *type) {
  FAKE_ENTER(cuGraphNodeGetType, kContext);
  *type = node->type;
  return kSuccess;
}

// What a conditional node's body may have.
static bool isRepeatable(const GraphTag &body) {
  return std::ranges::all_of(body.nodes, [](GraphNode node) {
    return node->type == kConditionalNode ? isRepeatable(*node->body)
                                          : node->type <= kFillNode;
  });
}

Result cuGraphInstantiateWithFlags(GraphRun *run, Graph graph,
                                   unsigned long long flags) {
  FAKE_ENTER(cuGraphInstantiateWithFlags, kContext | kNoCapture);
  FAKE_REQUIRE(all.graphs.contains(graph) && flags == 0,
               "no graph to instantiate", kInvalidValue);
  std::vector<Operation> operations;
  for (GraphNode node : graph->nodes) {
    operations.push_back(node->operation);
    if (!node->body)
      continue;
    FAKE_REQUIRE(isRepeatable(*node->body), "a loop in a graph calls the host",
                 kInvalidValue);
    FAKE_REQUIRE(graph->runs == 0, "a graph with loops is instantiated twice",
                 kInvalidValue);
  }
  ++graph->runs;
  *run = *all.runs.insert(new GraphRunTag{std::move(operations), graph}).first;
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
  if (all.runs.contains(run) && all.graphs.contains(run->graph))
    --run->graph->runs;
  return all.destroy(all.runs, run, "cuGraphExecDestroy of none");
}

Result cuGraphDestroy(Graph graph) {
  FAKE_ENTER(cuGraphDestroy, kFree);
  return all.destroy(all.graphs, graph, "cuGraphDestroy of none");
}

} // extern "C"

} // namespace tessera::test
