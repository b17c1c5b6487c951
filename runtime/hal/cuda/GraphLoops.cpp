#include "runtime/hal/cuda/GraphLoops.h"

#include <array>

namespace tessera::hal::cuda {
namespace {

/// What nvcc makes of
///
///     next = first ? 0 : *iteration + 1;
///     *iteration = next;
///     cudaGraphSetConditional(condition, next < trip && next < *count);
///
/// by one thread, before a loop and at the end of its body. The driver resolves
/// the function, which is its own. PTX 8.4 is CUDA 12.4's.
constexpr const char kCountIterations[] = R"(.version 8.4
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 condition, .param .b32 value);
.visible .entry tessera_count_iterations(
  .param .u64 condition, .param .u64 count, .param .u64 iteration,
  .param .u64 trip, .param .u64 first)
{
  .reg .pred %isFirst, %isIn, %goesOn;
  .reg .b32 %value;
  .reg .b64 %condition, %count, %iteration, %trip, %first, %next, %limit;
  ld.param.u64 %condition, [condition];
  ld.param.u64 %count, [count];
  ld.param.u64 %iteration, [iteration];
  ld.param.u64 %trip, [trip];
  ld.param.u64 %first, [first];
  cvta.to.global.u64 %count, %count;
  cvta.to.global.u64 %iteration, %iteration;
  ld.global.u64 %next, [%iteration];
  add.s64 %next, %next, 1;
  setp.ne.s64 %isFirst, %first, 0;
  selp.b64 %next, 0, %next, %isFirst;
  st.global.u64 [%iteration], %next;
  ld.global.s32 %limit, [%count];
  setp.lt.s64 %isIn, %next, %limit;
  setp.lt.and.u64 %goesOn, %next, %trip, %isIn;
  selp.u32 %value, 1, 0, %goesOn;
  {
    .param .b64 argument;
    .param .b32 argument2;
    st.param.b64 [argument], %condition;
    st.param.b32 [argument2], %value;
    call.uni cudaGraphSetConditional, (argument, argument2);
  }
  ret;
}
)";

/// Allowed in the body of a conditional node (CUDA_CONDITIONAL_NODE_PARAMS).
bool isRepeatable(int type) {
  switch (type) {
  case kKernelNode:
  case kCopyNode:
  case kFillNode:
  case kGraphNode:
  case kEmptyNode:
  case kConditionalNode:
    return true;
  default:
    return false;
  }
}

} // namespace

Status GraphLoops::create(std::size_t loops) {
  const Driver &driver = gpu->driver();
  Module loaded = nullptr;
  TESSERA_RETURN_IF_ERROR(
      driver.moduleLoad(&loaded, kCountIterations, 0, nullptr, nullptr));
  module = Owned<Module>(gpu, loaded, driver.moduleUnload);
  TESSERA_RETURN_IF_ERROR(
      driver.moduleKernel(&counts, loaded, "tessera_count_iterations"));
  auto memory = gpu->allocate(loops * sizeof(std::uint64_t),
                              "numbers of loops' iterations");
  if (!memory.ok())
    return memory.status();
  iterations = memory.take();
  Graph made = nullptr;
  TESSERA_RETURN_IF_ERROR(driver.graphCreate(&made, 0));
  graph = Owned<Graph>(gpu, made, driver.graphDestroy);
  return Status::success();
}

Status GraphLoops::beginPiece() {
  // Other threads may do as they like meanwhile.
  return gpu->driver().streamBeginCaptureTo(gpu->stream(), graph.get(),
                                            last.data(), edges.data(),
                                            last.size(), kCaptureThreadLocal);
}

// After an error too, or the stream would stay in capture mode.
Status GraphLoops::endCapture(const Status &captured) {
  Graph same = nullptr;
  const Status ended = gpu->driver().streamEndCapture(gpu->stream(), &same);
  return captured.ok() ? ended : captured;
}

Status GraphLoops::endPiece(const Status &captured) {
  int state = 0;
  unsigned long long id = 0;
  Graph into = nullptr;
  const GraphNode *nodes = nullptr;
  const GraphEdge *between = nullptr;
  std::size_t count = 0;
  Status status = captured;
  if (status.ok())
    status = gpu->driver().streamCaptureInfo(gpu->stream(), &state, &id, &into,
                                             &nodes, &between, &count);
  if (status.ok()) { // theirs until the capture goes on
    const std::vector<GraphNode> next(nodes, nodes + count);
    edges.assign(count, GraphEdge{});
    if (between)
      edges.assign(between, between + count);
    last = next;
  }
  return endCapture(status);
}

// The kernel that counts, into the stream.
Status GraphLoops::countIteration(bool isFirst) {
  std::array<std::uint64_t, 5> words = {loop.condition, loop.count,
                                        loop.iteration, loop.trip, isFirst};
  std::size_t bytes = sizeof(words);
  std::array<void *, 5> arguments = {kLaunchBuffer, words.data(),
                                     kLaunchBufferSize, &bytes, kLaunchEnd};
  return gpu->driver().launch(counts, 1, 1, 1, 1, 1, 1, 0, gpu->stream(),
                              nullptr, arguments.data());
}

Status GraphLoops::beginLoop(Address count, std::uint64_t trip) {
  const Driver &driver = gpu->driver();
  loop = {0, count, iterations.get() + sizeof(std::uint64_t) * loopCount++,
          trip, nullptr};
  TESSERA_RETURN_IF_ERROR(driver.graphCondition(&loop.condition, graph.get(),
                                                gpu->primary(), 0, 0));
  TESSERA_RETURN_IF_ERROR(beginPiece());
  TESSERA_RETURN_IF_ERROR(endPiece(countIteration(/*isFirst=*/true)));
  ConditionalNode parameters;
  parameters.condition = loop.condition;
  parameters.context = gpu->primary();
  GraphNode node = nullptr;
  TESSERA_RETURN_IF_ERROR(driver.graphAddNode(
      &node, graph.get(), last.data(), edges.data(), last.size(), &parameters));
  last = {node};
  edges = {GraphEdge{}};
  loop.body = parameters.bodies[0];
  return driver.streamBeginCaptureTo(gpu->stream(), loop.body, nullptr, nullptr,
                                     0, kCaptureThreadLocal);
}

Status GraphLoops::endLoop(const Status &captured) {
  TESSERA_RETURN_IF_ERROR(
      endCapture(captured.ok() ? countIteration(/*isFirst=*/false) : captured));
  return checkBody();
}

// The driver would refuse it without saying what it is.
Status GraphLoops::checkBody() {
  const Driver &driver = gpu->driver();
  std::size_t count = 0;
  TESSERA_RETURN_IF_ERROR(driver.graphNodes(loop.body, nullptr, &count));
  std::vector<GraphNode> nodes(count);
  TESSERA_RETURN_IF_ERROR(driver.graphNodes(loop.body, nodes.data(), &count));
  for (GraphNode node : nodes) {
    int type = 0;
    TESSERA_RETURN_IF_ERROR(driver.graphNodeType(node, &type));
    if (!isRepeatable(type))
      refused = type == kHostNode ? "collectives call functions of the host"
                                  : fmt::format("nodes of type {}", type);
  }
  return Status::success();
}

StatusOr<Owned<GraphRun>> GraphLoops::instantiate() {
  const Driver &driver = gpu->driver();
  GraphRun run = nullptr;
  TESSERA_RETURN_IF_ERROR(driver.graphInstantiate(&run, graph.get(), 0));
  Owned<GraphRun> owned(gpu, run, driver.graphRunDestroy);
  // So that the first run is as fast as all others.
  TESSERA_RETURN_IF_ERROR(driver.graphUpload(run, gpu->stream()));
  return owned;
}

} // namespace tessera::hal::cuda
