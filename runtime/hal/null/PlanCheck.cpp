#include "runtime/hal/null/PlanCheck.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/null/ByteSet.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tessera::hal {
namespace {

using namespace artifact;
using Nodes = flatbuffers::Vector<flatbuffers::Offset<Node>>;

/// An argument's bytes in one iteration.
struct Extent {
  Space space;
  std::uint64_t begin, end;

  bool meets(const Extent &other) const {
    return space == other.space && begin < other.end && other.begin < end;
  }
};

/// A collective that was started.
struct Underway {
  std::uint32_t ticket;
  Extent from, to;
};

/// What one instance of a launch touches.
struct Touch {
  Extent extent;
  std::uint32_t instance;
  bool writes;
};

/// The farthest end among earlier ranges, and the farthest of any other
/// instance: enough to know whether a later range meets a foreign one.
struct Reach {
  std::uint64_t end = 0, otherEnd = 0;
  std::uint32_t instance = 0, other = 0;

  void add(const Touch &touch) {
    if (touch.instance == instance) {
      end = std::max(end, touch.extent.end);
    } else if (touch.extent.end > end) {
      other = instance, otherEnd = end;
      instance = touch.instance, end = touch.extent.end;
    } else if (touch.extent.end > otherEnd) {
      other = touch.instance, otherEnd = touch.extent.end;
    }
  }
  /// An instance other than touch's that reaches beyond its begin, or -1.
  std::int64_t meets(const Touch &touch) const {
    if (instance != touch.instance && end > touch.extent.begin)
      return instance;
    if (other != touch.instance && otherEnd > touch.extent.begin)
      return other;
    return -1;
  }
};

class PlanChecker {
public:
  PlanChecker(std::uint64_t stateBytes, const DeviceCode &code,
              const Program &program, std::uint64_t maxSteps)
      : stateBytes(stateBytes), code(code), program(program),
        maxSteps(maxSteps) {}
  Status run();

private:
  Status nodes(const Nodes &nodes);
  Status node(const Node &node);
  Status launch(const Launch &launch);
  Status loop(const Loop &loop);
  Status collective(const Collective &collective);
  Status wait(const Wait &wait);
  Status free(const Extent &extent, bool writes) const;
  Status conflicts(std::vector<Touch> &touches, const Launch &launch) const;
  Status read(const Extent &extent, std::string_view what,
              std::uint32_t argument);
  Status write(const Extent &extent);
  Extent extent(const Arg &arg) const;
  ByteSet &set(Space space) { return written[static_cast<std::size_t>(space)]; }

  std::uint64_t stateBytes;
  const DeviceCode &code;
  const Program &program;
  std::uint64_t maxSteps;
  std::array<ByteSet, 3> written; // by Space
  std::vector<Underway> underway;
  std::vector<std::uint64_t> iterations; // of the open loops, outermost first
  std::uint64_t steps = 0;
};

/// Whether anything in `nodes` moves with the loop at `level`.
bool moves(const Nodes &nodes, flatbuffers::uoffset_t level);

bool moves(const Arg &arg, flatbuffers::uoffset_t level) {
  return arg.loop_strides()->Get(level) != 0;
}

bool moves(const Node &node, flatbuffers::uoffset_t level) {
  if (const Loop *loop = node.step_as_Loop())
    return moves(*loop->body(), level);
  if (const Copy *copy = node.step_as_Copy())
    return moves(*copy->from(), level) || moves(*copy->to(), level);
  if (const Fill *fill = node.step_as_Fill())
    return moves(*fill->to(), level);
  if (const Collective *one = node.step_as_Collective())
    return moves(*one->from(), level) || moves(*one->to(), level) ||
           (one->rows() && moves(*one->rows(), level));
  if (node.step_as_Wait())
    return false;
  for (const Instance *instance : *node.step_as_Launch()->instances())
    for (const Arg *arg : *instance->args())
      if (moves(*arg, level))
        return true;
  return false;
}

bool moves(const Nodes &nodes, flatbuffers::uoffset_t level) {
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Node *node) { return moves(*node, level); });
}

Status PlanChecker::run() {
  set(Space::state).insert(0, stateBytes);
  for (const Tensor *input : *program.inputs())
    set(Space::io).insert(input->offset(), input->offset() + input->bytes());
  TESSERA_RETURN_IF_ERROR(nodes(*program.steps()));
  for (const Tensor *output : *program.outputs()) {
    const std::uint64_t end = output->offset() + output->bytes();
    const std::uint64_t missing =
        set(Space::io).firstMissing(output->offset(), end);
    if (missing != end)
      return Status::error("output '{}': nothing writes its byte {}",
                           toView(output->name()), missing - output->offset());
  }
  return Status::success();
}

Status PlanChecker::nodes(const Nodes &nodes) {
  for (flatbuffers::uoffset_t i = 0; i < nodes.size(); ++i) {
    if (++steps > maxSteps)
      return Status::error("more than {} steps are too many to check",
                           maxSteps);
    if (Status status = node(*nodes.Get(i)); !status.ok())
      return Status::error("step {} ({}): {}", i,
                           toView(nodes.Get(i)->origin()), status.message());
  }
  return Status::success();
}

Status PlanChecker::node(const Node &node) {
  if (const Launch *launched = node.step_as_Launch())
    return launch(*launched);
  if (const Loop *looped = node.step_as_Loop())
    return loop(*looped);
  if (const Copy *copy = node.step_as_Copy()) {
    TESSERA_RETURN_IF_ERROR(read(extent(*copy->from()), "copy", 0));
    return write(extent(*copy->to()));
  }
  if (const Collective *one = node.step_as_Collective())
    return collective(*one);
  if (const Wait *awaited = node.step_as_Wait())
    return wait(*awaited);
  return write(extent(*node.step_as_Fill()->to()));
}

Status PlanChecker::collective(const Collective &collective) {
  const Extent from = extent(*collective.from()), to = extent(*collective.to());
  TESSERA_RETURN_IF_ERROR(
      read(from, EnumNameCollectiveKind(collective.kind()), 0));
  if (collective.rows())
    TESSERA_RETURN_IF_ERROR(read(extent(*collective.rows()),
                                 EnumNameCollectiveKind(collective.kind()), 2));
  TESSERA_RETURN_IF_ERROR(write(to));
  if (collective.ticket() != 0)
    underway.push_back({collective.ticket(), from, to});
  return Status::success();
}

Status PlanChecker::wait(const Wait &wait) {
  std::erase_if(underway, [&](const Underway &one) {
    return one.ticket == wait.ticket();
  });
  return Status::success();
}

// Whether collectives that are under way leave those bytes alone.
Status PlanChecker::free(const Extent &extent, bool writes) const {
  for (const Underway &one : underway)
    if (extent.meets(one.to) || (writes && extent.meets(one.from)))
      return Status::error("{} bytes {} to {} of the {}, which the collective "
                           "with ticket {} still uses",
                           writes ? "writes" : "reads", extent.begin,
                           extent.end, EnumNameSpace(extent.space), one.ticket);
  return Status::success();
}

Status PlanChecker::launch(const Launch &launch) {
  const Kernel &kernel = *code.kernels()->Get(launch.kernel());
  std::vector<Touch> touches;
  for (std::uint32_t i = 0; i < launch.instances()->size(); ++i) {
    const Instance &instance = *launch.instances()->Get(i);
    for (std::uint32_t a = 0; a < instance.args()->size(); ++a) {
      const Access access = kernel.access()->Get(a);
      const Extent bytes = extent(*instance.args()->Get(a));
      if (access != Access::write)
        TESSERA_RETURN_IF_ERROR(read(bytes, toView(kernel.name()), a));
      touches.push_back({bytes, i, access != Access::read});
    }
  }
  if (launch.instances()->size() > 1)
    TESSERA_RETURN_IF_ERROR(conflicts(touches, launch));
  for (const Touch &touch : touches)
    if (touch.writes)
      TESSERA_RETURN_IF_ERROR(write(touch.extent));
  return Status::success();
}

Status PlanChecker::conflicts(std::vector<Touch> &touches,
                              const Launch &launch) const {
  std::erase_if(touches, [](const Touch &touch) {
    return touch.extent.begin == touch.extent.end;
  });
  std::sort(touches.begin(), touches.end(), [](const Touch &a, const Touch &b) {
    return std::pair(a.extent.space, a.extent.begin) <
           std::pair(b.extent.space, b.extent.begin);
  });
  Reach reads, writes;
  for (std::size_t i = 0; i < touches.size(); ++i) {
    const Touch &touch = touches[i];
    if (i == 0 || touches[i - 1].extent.space != touch.extent.space)
      reads = writes = Reach();
    std::int64_t other = writes.meets(touch);
    if (other < 0 && touch.writes)
      other = reads.meets(touch);
    if (other >= 0)
      return Status::error(
          "kernel '{}': instances {} and {} touch byte {} of the {} at the "
          "same time, and one writes it",
          toView(code.kernels()->Get(launch.kernel())->name()), other,
          touch.instance, touch.extent.begin,
          EnumNameSpace(touch.extent.space));
    (touch.writes ? writes : reads).add(touch);
  }
  return Status::success();
}

Status PlanChecker::loop(const Loop &loop) {
  const auto level = static_cast<flatbuffers::uoffset_t>(iterations.size());
  if (loop.count())
    TESSERA_RETURN_IF_ERROR(read(extent(*loop.count()), "count of a loop", 0));
  // What is written only grows, so of equal iterations the first is hardest.
  const std::uint64_t trips = moves(*loop.body(), level) ? loop.trip() : 1;
  iterations.push_back(0);
  for (std::uint64_t i = 0; i < trips; ++i) {
    iterations.back() = i;
    if (Status status = nodes(*loop.body()); !status.ok())
      return Status::error("iteration {}: {}", i, status.message());
  }
  iterations.pop_back();
  return Status::success();
}

Extent PlanChecker::extent(const Arg &arg) const {
  std::uint64_t begin = arg.offset();
  for (std::size_t level = 0; level < iterations.size(); ++level)
    begin +=
        iterations[level] *
        arg.loop_strides()->Get(static_cast<flatbuffers::uoffset_t>(level));
  return {arg.space(), begin, begin + arg.bytes()};
}

Status PlanChecker::read(const Extent &extent, std::string_view what,
                         std::uint32_t argument) {
  TESSERA_RETURN_IF_ERROR(free(extent, false));
  const std::uint64_t missing =
      set(extent.space).firstMissing(extent.begin, extent.end);
  if (missing == extent.end)
    return Status::success();
  return Status::error("{}: argument {} reads byte {} of the {}, which nothing "
                       "has written",
                       what, argument, missing, EnumNameSpace(extent.space));
}

Status PlanChecker::write(const Extent &extent) {
  TESSERA_RETURN_IF_ERROR(free(extent, true));
  set(extent.space).insert(extent.begin, extent.end);
  return Status::success();
}

} // namespace

Status checkPlan(const ArtifactReader &artifact, const DeviceCode &code,
                 const Program &program, std::uint64_t maxSteps) {
  if (Status status =
          PlanChecker(artifact.share().state_bytes(), code, program, maxSteps)
              .run();
      !status.ok())
    return Status::error("{}: program '{}': {}", artifact.path(),
                         toView(program.name()), status.message());
  return Status::success();
}

} // namespace tessera::hal
