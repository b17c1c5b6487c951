#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/Checker.h"

#include <array>

namespace tessera::artifact {
namespace {

/// The loops around a node, outermost first.
struct Nest {
  std::array<std::uint64_t, kMaxLoopDepth> trips;
  unsigned depth = 0;
  std::uint64_t runs = 1; // product of trips
};

using Nodes = flatbuffers::Vector<flatbuffers::Offset<Node>>;

/// Of arguments in the same loops.
bool movesAlike(const Arg &a, const Arg &b) {
  if (!a.loop_strides() || !b.loop_strides())
    return true; // outside of loops
  return std::equal(a.loop_strides()->begin(), a.loop_strides()->end(),
                    b.loop_strides()->begin(), b.loop_strides()->end());
}

bool isSamePlace(const Arg &a, const Arg &b) {
  return a.space() == b.space() && a.offset() == b.offset() &&
         a.bytes() == b.bytes() && movesAlike(a, b);
}

class ProgramChecker {
public:
  ProgramChecker(ShareChecker &share, const DeviceCode &code,
                 const Program &program)
      : share(share), checker(share.checker), code(code), program(program) {}
  Status nodes(const Nodes &nodes);
  /// Call after `nodes`, which counts the steps.
  Status buffers();

private:
  Status node(const Node &node);
  Status gemm(const Instance &instance, const Kernel &kernel);
  Status map(const Instance &instance, const TensorMap &map);
  Status maps(const Instance &instance, const Kernel &kernel);
  Status launch(const Launch &launch);
  Status instance(const Instance &instance, const Kernel &kernel);
  Status loop(const Loop &loop);
  Status collective(const Collective &collective);
  Status wait(const Wait &wait);
  Status arg(const Arg &arg, bool seenByKernel);
  std::uint64_t endOf(const Arg &arg) const;
  bool areApart(const Arg &a, const Arg &b) const;

  ShareChecker &share;
  Checker &checker;
  const DeviceCode &code;
  const Program &program;
  Nest nest;
  std::uint64_t steps = 0; ///< numbered as Buffer's live range is
  /// Of collectives that were started and not waited for, and how deep in
  /// loops that was.
  std::map<std::uint32_t, unsigned> started;
};

Status ProgramChecker::nodes(const Nodes &nodes) {
  for (flatbuffers::uoffset_t i = 0; i < nodes.size(); ++i) {
    const std::string_view origin = toView(nodes.Get(i)->origin());
    if (!isLine(origin))
      return checker.fail(nodes.Get(i),
                          "step {}: its origin holds control characters", i);
    if (nodes.Get(i)->layer() < -1 || nodes.Get(i)->layer() >= kMaxLayers)
      return checker.fail(nodes.Get(i), "step {}: unknown layer {}", i,
                          nodes.Get(i)->layer());
    ++steps;
    TESSERA_RETURN_WITHIN(node(*nodes.Get(i)), "step {}{}{}{}", i,
                          origin.empty() ? "" : " (", origin,
                          origin.empty() ? "" : ")");
  }
  for (const auto &[ticket, depth] : started)
    if (depth == nest.depth)
      return checker.fail(&nodes, "nothing waits for ticket {}", ticket);
  return Status::success();
}

Status ProgramChecker::node(const Node &node) {
  switch (node.step_type()) {
  case Step::Launch:
    return launch(*node.step_as_Launch());
  case Step::Loop:
    return loop(*node.step_as_Loop());
  case Step::Copy: {
    const Copy &copy = *node.step_as_Copy();
    TESSERA_RETURN_WITHIN(arg(*copy.from(), false), "copy source");
    TESSERA_RETURN_WITHIN(arg(*copy.to(), false), "copy destination");
    if (copy.from()->bytes() != copy.to()->bytes())
      return checker.fail(&copy, "copy of {} bytes into {}",
                          copy.from()->bytes(), copy.to()->bytes());
    return Status::success();
  }
  case Step::Fill:
    TESSERA_RETURN_WITHIN(arg(*node.step_as_Fill()->to(), false),
                          "fill destination");
    return Status::success();
  case Step::Collective:
    TESSERA_RETURN_WITHIN(
        collective(*node.step_as_Collective()), "{}",
        EnumNameCollectiveKind(node.step_as_Collective()->kind()));
    return Status::success();
  case Step::Wait:
    return wait(*node.step_as_Wait());
  case Step::NONE:
    break;
  }
  return checker.fail(&node, "unknown kind of step {}",
                      static_cast<int>(node.step_type()));
}

Status ProgramChecker::launch(const Launch &launch) {
  const auto &kernels = *code.kernels();
  if (launch.kernel() >= kernels.size())
    return checker.fail(&launch, "launch of kernel {}, but there are {}",
                        launch.kernel(), kernels.size());
  const Kernel &kernel = *kernels.Get(launch.kernel());
  if (launch.instances()->size() == 0)
    return checker.fail(&launch, "launch of '{}' without an instance",
                        toView(kernel.name()));
  const bool hasMaps =
      kernel.gpu() && kernel.gpu()->maps() && kernel.gpu()->maps()->size() != 0;
  if (hasMaps && launch.instances()->size() != 1)
    return checker.fail(&launch,
                        "launch of '{}', which has tensor maps, with "
                        "{} instances",
                        toView(kernel.name()), launch.instances()->size());
  // Without sizes a GPU's kernel looks at its first instance only.
  if (kernel.gpu() && kernel.dynamic_sizes() == 0 &&
      launch.instances()->size() > 1)
    return checker.fail(&launch,
                        "launch of '{}', which takes no sizes, with "
                        "{} instances",
                        toView(kernel.name()), launch.instances()->size());
  // A device sets its blocks when it takes a variant: those of one instance.
  if (kernel.variants() && kernel.variants()->size() != 0 &&
      launch.instances()->size() != 1)
    return checker.fail(&launch,
                        "launch of '{}', which has variants, with {} instances",
                        toView(kernel.name()), launch.instances()->size());
  std::uint64_t blocks = 0;
  for (flatbuffers::uoffset_t i = 0; i < launch.instances()->size(); ++i) {
    const Instance &one = *launch.instances()->Get(i);
    TESSERA_RETURN_WITHIN(instance(one, kernel), "'{}' instance {}",
                          toView(kernel.name()), i);
    const unsigned bits = kernel.gpu() ? kGpuBlockBits : kCpuBlockBits;
    if (__builtin_add_overflow(blocks, one.blocks(), &blocks) ||
        blocks >= std::uint64_t(1) << bits)
      return checker.fail(&one, "launch of '{}' with 2^{} blocks or more",
                          toView(kernel.name()), bits);
  }
  return Status::success();
}

// Every element of a library's matmul is within the arguments that it gets.
// validateCode has bounded the numbers.
Status ProgramChecker::gemm(const Instance &instance, const Kernel &kernel) {
  const Gemm &gemm = *kernel.gemm();
  const auto check = [&](const GemmOperand &operand, std::uint64_t rows,
                         std::uint64_t columns) -> Status {
    const Arg &arg = *instance.args()->Get(operand.buffer());
    using Wide = unsigned __int128;
    const Wide last = Wide(operand.offset()) +
                      Wide(rows - 1) * operand.major() +
                      Wide(columns - 1) * operand.minor() +
                      Wide(gemm.batches() - 1) * operand.batch();
    const std::uint64_t bytes =
        elementBytes(kernel.element_types()->Get(operand.buffer()));
    if ((last + 1) * bytes > arg.bytes())
      return checker.fail(&operand, "a product that leaves argument {}",
                          operand.buffer());
    return Status::success();
  };
  TESSERA_RETURN_IF_ERROR(check(*gemm.lhs(), gemm.m(), gemm.k()));
  TESSERA_RETURN_IF_ERROR(check(*gemm.rhs(), gemm.n(), gemm.k()));
  return check(*gemm.result(), gemm.m(), gemm.n());
}

// All of a tensor is within the argument that it is a view of, and begins at an
// address that the copy engine can read in every iteration. validateCode has
// bounded the numbers.
Status ProgramChecker::map(const Instance &instance, const TensorMap &map) {
  constexpr std::uint64_t kAligned = 16;
  const Arg &arg = *instance.args()->Get(map.buffer());
  using Wide = unsigned __int128;
  Wide end =
      Wide(map.offset()) + Wide(map.sizes()->Get(0)) * elementBytes(map.type());
  for (flatbuffers::uoffset_t i = 0; i < map.strides()->size(); ++i)
    end += Wide(map.sizes()->Get(i + 1) - 1) * map.strides()->Get(i);
  if (end > arg.bytes())
    return checker.fail(&map, "a tensor map that leaves argument {}",
                        map.buffer());
  // It begins at a multiple of 64 bytes.
  if (!arg.loop_strides())
    return Status::success();
  for (const std::uint64_t stride : *arg.loop_strides())
    if (stride % kAligned)
      return checker.fail(&map,
                          "a tensor map of argument {}, which moves by {} "
                          "bytes: no multiple of {}",
                          map.buffer(), stride, kAligned);
  return Status::success();
}

Status ProgramChecker::maps(const Instance &instance, const Kernel &kernel) {
  if (kernel.gpu() && kernel.gpu()->maps())
    for (const TensorMap *one : *kernel.gpu()->maps())
      TESSERA_RETURN_IF_ERROR(map(instance, *one));
  return Status::success();
}

Status ProgramChecker::instance(const Instance &instance,
                                const Kernel &kernel) {
  const auto &args = *instance.args();
  if (args.size() != kernel.access()->size())
    return checker.fail(&instance, "{} arguments, but the kernel takes {}",
                        args.size(), kernel.access()->size());
  const std::size_t sizes = instance.sizes() ? instance.sizes()->size() : 0;
  if (sizes != kernel.dynamic_sizes())
    return checker.fail(&instance, "{} sizes, but the kernel takes {}", sizes,
                        kernel.dynamic_sizes());
  if (!isAligned(instance.sizes()))
    return checker.fail(&instance, "its sizes are misaligned");
  for (flatbuffers::uoffset_t i = 0; i < args.size(); ++i)
    TESSERA_RETURN_WITHIN(arg(*args.Get(i), true), "argument {}", i);
  TESSERA_RETURN_IF_ERROR(maps(instance, kernel));
  if (kernel.variants())
    for (const Variant *one : *kernel.variants())
      TESSERA_RETURN_IF_ERROR(
          maps(instance, *code.kernels()->Get(one->kernel())));
  return kernel.gemm() ? gemm(instance, kernel) : Status::success();
}

Status ProgramChecker::loop(const Loop &loop) {
  if (nest.depth == kMaxLoopDepth)
    return checker.fail(&loop, "loops nest deeper than {}", kMaxLoopDepth);
  if (loop.trip() == 0)
    return checker.fail(&loop, "loop that never runs");
  if (loop.count()) {
    TESSERA_RETURN_WITHIN(arg(*loop.count(), false), "count of a loop");
    if (loop.count()->bytes() != sizeof(std::int32_t))
      return checker.fail(&loop, "a count of {} bytes", loop.count()->bytes());
  }
  const Nest outer = nest;
  if (__builtin_mul_overflow(nest.runs, loop.trip(), &nest.runs) ||
      nest.runs > kMaxRuns)
    return checker.fail(&loop,
                        "loop of {} trips inside {} others exceeds {} "
                        "runs",
                        loop.trip(), outer.runs, kMaxRuns);
  nest.trips[nest.depth++] = loop.trip();
  TESSERA_RETURN_WITHIN(nodes(*loop.body()), "loop");
  nest = outer;
  ++steps;
  return Status::success();
}

Status ProgramChecker::buffers() {
  if (!program.buffers())
    return Status::success();
  for (const Buffer *one : *program.buffers()) {
    if (!isKnown(one->use()) || !isKnown(one->type()))
      return checker.fail(one, "buffer of unknown use {} or type {}",
                          static_cast<int>(one->use()),
                          static_cast<int>(one->type()));
    if (!isAligned(one->shape()) || one->shape()->size() > kMaxRank)
      return checker.fail(one, "buffer of {} dimensions", one->shape()->size());
    if (one->offset() > program.arena_bytes() ||
        one->bytes() > program.arena_bytes() - one->offset())
      return checker.fail(one,
                          "buffer of {} bytes at {} leaves the arena of {}",
                          one->bytes(), one->offset(), program.arena_bytes());
    if (one->first() > one->last() || one->last() >= steps)
      return checker.fail(one, "buffer lives from step {} to {} of {}",
                          one->first(), one->last(), steps);
  }
  return Status::success();
}

Status ProgramChecker::collective(const Collective &collective) {
  TESSERA_RETURN_WITHIN(arg(*collective.from(), false), "source");
  TESSERA_RETURN_WITHIN(arg(*collective.to(), false), "destination");
  if (collective.rows())
    TESSERA_RETURN_WITHIN(arg(*collective.rows(), false), "counts of rows");
  TESSERA_RETURN_IF_ERROR(validateCollective(share, collective));
  const Arg &from = *collective.from(), &to = *collective.to();
  const bool isInPlace = collective.kind() == CollectiveKind::all_reduce;
  if (isInPlace && !isSamePlace(from, to))
    return checker.fail(&collective, "its arguments are not one");
  if (!isInPlace && !areApart(from, to))
    return checker.fail(&collective, "its arguments overlap");
  if (collective.rows() && !areApart(*collective.rows(), to))
    return checker.fail(&collective, "its arguments overlap");
  if (collective.ticket() != 0 &&
      !started.try_emplace(collective.ticket(), nest.depth).second)
    return checker.fail(&collective, "ticket {} is under way",
                        collective.ticket());
  return Status::success();
}

Status ProgramChecker::wait(const Wait &wait) {
  const auto found = started.find(wait.ticket());
  if (found == started.end() || found->second != nest.depth)
    return checker.fail(&wait, "no collective has the ticket {} here",
                        wait.ticket());
  started.erase(found);
  return Status::success();
}

// Where the argument ends in the last iteration of all loops; `arg` has proven
// that this is in its space.
std::uint64_t ProgramChecker::endOf(const Arg &arg) const {
  std::uint64_t end = arg.offset() + arg.bytes();
  for (unsigned i = 0; i < nest.depth; ++i)
    end += arg.loop_strides()->Get(i) * (nest.trips[i] - 1);
  return end;
}

// In every iteration: they move together, or never come near each other.
bool ProgramChecker::areApart(const Arg &a, const Arg &b) const {
  if (a.space() != b.space() || a.bytes() == 0 || b.bytes() == 0 ||
      endOf(a) <= b.offset() || endOf(b) <= a.offset())
    return true;
  return movesAlike(a, b) && (a.offset() + a.bytes() <= b.offset() ||
                              b.offset() + b.bytes() <= a.offset());
}

Status ProgramChecker::arg(const Arg &arg, bool seenByKernel) {
  if (!isKnown(arg.space()))
    return checker.fail(&arg, "unknown space {}",
                        static_cast<int>(arg.space()));
  const std::size_t strides =
      arg.loop_strides() ? arg.loop_strides()->size() : 0;
  if (strides != nest.depth)
    return checker.fail(&arg, "{} loop strides inside {} loops", strides,
                        nest.depth);
  if (!isAligned(arg.loop_strides()))
    return checker.fail(&arg, "its loop strides are misaligned");
  if (seenByKernel && arg.offset() % kArtifactAlignment != 0)
    return checker.fail(&arg, "offset {} is not a multiple of {}", arg.offset(),
                        kArtifactAlignment);
  // The last iteration of every loop reaches farthest, strides being unsigned.
  std::uint64_t end = arg.offset();
  bool overflow = __builtin_add_overflow(end, arg.bytes(), &end);
  for (unsigned i = 0; i < nest.depth; ++i) {
    std::uint64_t advance;
    overflow |= __builtin_mul_overflow(arg.loop_strides()->Get(i),
                                       nest.trips[i] - 1, &advance);
    overflow |= __builtin_add_overflow(end, advance, &end);
  }
  const std::uint64_t limit = spaceBytes(share.share, program, arg.space());
  if (overflow || end > limit)
    return checker.fail(&arg, "{} bytes at {} leave the {} of {} bytes{}",
                        arg.bytes(), arg.offset(), EnumNameSpace(arg.space()),
                        limit, nest.depth ? " in the last iteration" : "");
  return Status::success();
}

/// The input that the runtime writes has a number for each of the factors.
Status checkOffsets(ShareChecker &share, const Program &program) {
  const auto *offsets = share.share.offsets();
  for (const Tensor *input : *program.inputs())
    if (toView(input->name()) == kOffsetsInput &&
        (!offsets || input->type() != ElementType::i32 ||
         input->bytes() != std::uint64_t(offsets->size()) * 4))
      return share.checker.fail(input,
                                "input '{}' of {} has {} bytes for {} "
                                "factors",
                                kOffsetsInput,
                                EnumNameElementType(input->type()),
                                input->bytes(), offsets ? offsets->size() : 0);
  return Status::success();
}

} // namespace

Status validateProgram(ShareChecker &share, const DeviceCode &code,
                       const Program &program) {
  for (const auto &[bytes, what] : {std::pair(program.arena_bytes(), "arena"),
                                    std::pair(program.io_bytes(), "io")})
    if (bytes > kMaxSpaceBytes)
      return share.checker.fail(&program, "its {} of {} bytes exceeds {}", what,
                                bytes, kMaxSpaceBytes);
  TESSERA_RETURN_IF_ERROR(validateTensors(
      share, {program.inputs(), "input", Space::io, program.io_bytes(),
              [](Role role) { return role == Role::input; }}));
  TESSERA_RETURN_IF_ERROR(validateTensors(
      share, {program.outputs(), "output", Space::io, program.io_bytes(),
              [](Role role) {
                return role == Role::output || role == Role::metric;
              }}));
  TESSERA_RETURN_IF_ERROR(checkOffsets(share, program));
  ProgramChecker programChecker(share, code, program);
  TESSERA_RETURN_IF_ERROR(programChecker.nodes(*program.steps()));
  return programChecker.buffers();
}

} // namespace tessera::artifact
