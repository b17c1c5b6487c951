#include "runtime/hal/host/Commands.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/KernelTable.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace tessera::hal {
namespace {

using artifact::Arg;
using artifact::Node;
using artifact::Step;
using artifact::toView;
using Nodes = flatbuffers::Vector<flatbuffers::Offset<Node>>;

class Flattener {
public:
  Flattener(const artifact::DeviceCode &code, const SpaceAddresses &spaces)
      : code(code), spaces(spaces) {}
  void nodes(const Nodes &nodes);
  Commands take() { return std::move(out); }

private:
  void launch(const artifact::Launch &launch, std::string_view origin);
  void loop(const artifact::Loop &loop);
  void copy(const artifact::Copy &copy, std::string_view origin);
  void fill(const artifact::Fill &fill, std::string_view origin);
  void collective(const artifact::Collective &collective,
                  std::string_view origin);
  std::uint32_t pointer(const Arg &arg);
  /// Appends a command and the step that profiles it.
  void emit(Command::Kind kind, std::size_t index, ProfiledStep step);

  const artifact::DeviceCode &code;
  SpaceAddresses spaces;
  Commands out;
  /// For each open loop, outermost first, the pointers that it moves.
  std::vector<std::vector<Advance>> open;
  std::map<std::uint32_t, std::uint32_t> started; // by ticket, the collective
};

std::uint32_t index32(std::size_t index) {
  // A buffer of less than 2 GiB cannot list 2^32 of anything.
  return static_cast<std::uint32_t>(index);
}

void Flattener::nodes(const Nodes &nodes) {
  for (const Node *node : nodes) {
    const std::string_view origin = toView(node->origin());
    switch (node->step_type()) {
    case Step::Launch:
      launch(*node->step_as_Launch(), origin);
      break;
    case Step::Loop:
      loop(*node->step_as_Loop());
      break;
    case Step::Copy:
      copy(*node->step_as_Copy(), origin);
      break;
    case Step::Fill:
      fill(*node->step_as_Fill(), origin);
      break;
    case Step::Collective:
      collective(*node->step_as_Collective(), origin);
      break;
    case Step::Wait:
      emit(Command::Kind::wait, started[node->step_as_Wait()->ticket()],
           {.what = "wait", .origin = origin, .isCollective = true});
      break;
    case Step::NONE:
      break; // the validator refused it
    }
  }
}

void Flattener::emit(Command::Kind kind, std::size_t index, ProfiledStep step) {
  out.commands.push_back({kind, index32(index), index32(out.steps.size())});
  out.steps.push_back(step);
}

std::uint32_t Flattener::pointer(const Arg &arg) {
  const std::uint32_t index = index32(out.pointers.size());
  std::byte *base = arg.space() == artifact::Space::state   ? spaces.state
                    : arg.space() == artifact::Space::arena ? spaces.arena
                                                            : spaces.io;
  out.pointers.push_back(base + arg.offset());
  for (std::size_t level = 0; level < open.size(); ++level)
    if (const std::uint64_t stride =
            arg.loop_strides()->Get(static_cast<flatbuffers::uoffset_t>(level)))
      open[level].push_back({index, stride});
  return index;
}

void Flattener::launch(const artifact::Launch &launch,
                       std::string_view origin) {
  const artifact::Kernel &kernel = *code.kernels()->Get(launch.kernel());
  LaunchCommand command{&kernel, launch.kernel(), index32(out.instances.size()),
                        0, 0};
  for (const artifact::Instance *instance : *launch.instances()) {
    LaunchInstance one{
        index32(out.pointers.size()), command.blocks,
        command.blocks + static_cast<std::uint32_t>(instance->blocks()),
        instance->sizes() ? instance->sizes()->data() : nullptr, instance};
    for (const Arg *arg : *instance->args())
      pointer(*arg);
    command.blocks = one.endBlock;
    out.instances.push_back(one);
  }
  command.endInstance = index32(out.instances.size());
  const std::uint64_t instances = launch.instances()->size();
  emit(Command::Kind::launch, out.launches.size(),
       {toView(kernel.name()), origin, kernel.flops() * instances,
        artifact::launchBytes(launch, kernel)});
  out.launches.push_back(command);
}

void Flattener::loop(const artifact::Loop &loop) {
  const std::uint32_t index = index32(out.loops.size());
  const std::uint32_t count =
      loop.count() ? pointer(*loop.count()) : LoopCommand::kNoCount;
  out.loops.push_back(
      {loop.trip(), count, index32(out.commands.size() + 1), 0, 0, 0});
  out.commands.push_back({Command::Kind::loopBegin, index, 0});
  open.emplace_back();
  nodes(*loop.body());
  out.loops[index].firstAdvance = index32(out.advances.size());
  out.advances.insert(out.advances.end(), open.back().begin(),
                      open.back().end());
  out.loops[index].endAdvance = index32(out.advances.size());
  open.pop_back();
  out.loops[index].endCommand = index32(out.commands.size());
  out.commands.push_back({Command::Kind::loopEnd, index, 0});
}

void Flattener::copy(const artifact::Copy &copy, std::string_view origin) {
  const std::uint32_t from = pointer(*copy.from()), to = pointer(*copy.to());
  const std::uint64_t bytes = copy.to()->bytes();
  emit(Command::Kind::copy, out.copies.size(), {"copy", origin, 0, 2 * bytes});
  out.copies.push_back({from, to, bytes});
}

void Flattener::fill(const artifact::Fill &fill, std::string_view origin) {
  const std::uint64_t bytes = fill.to()->bytes();
  emit(Command::Kind::fill, out.fills.size(), {"fill", origin, 0, bytes});
  out.fills.push_back({pointer(*fill.to()), bytes, fill.value()});
}

void Flattener::collective(const artifact::Collective &collective,
                           std::string_view origin) {
  const std::uint64_t from = collective.from()->bytes(),
                      to = collective.to()->bytes();
  const std::uint32_t index = index32(out.collectives.size());
  emit(Command::Kind::collective, index,
       {.what = artifact::EnumNameCollectiveKind(collective.kind()),
        .origin = origin,
        .bytes = std::max(from, to),
        .isCollective = true});
  const std::uint32_t source = pointer(*collective.from());
  const std::uint32_t target = pointer(*collective.to());
  out.collectives.push_back(
      {&collective, source, target,
       collective.rows() ? pointer(*collective.rows()) : source});
  if (collective.ticket() != 0)
    started[collective.ticket()] = index;
}

} // namespace

Walk::Walk(Commands &code, ReadCount readCount, bool visitsAll)
    : code(code), readCount(std::move(readCount)), visitsAll(visitsAll),
      firstPointers(code.pointers), trips(code.loops.size()),
      tripsLeft(code.loops.size()), idleTrips(code.loops.size()) {}

std::int32_t Walk::countInMemory(const void *address) {
  std::int32_t count;
  std::memcpy(&count, address, sizeof count);
  return count;
}

void Walk::restart() {
  // A walk that an error cut short left pointers inside loops.
  std::copy(firstPointers.begin(), firstPointers.end(), code.pointers.begin());
  position = 0;
  idle = outer = LoopCommand::kNoCount;
  countedLoops = 0;
  place = {};
}

const Command *Walk::next() {
  while (position < code.commands.size()) {
    const Command &command = code.commands[position++];
    if (command.kind == Command::Kind::loopBegin)
      beginLoop(command.index);
    else if (command.kind == Command::Kind::loopEnd)
      endIteration(command.index);
    else
      return &command;
  }
  return nullptr;
}

void Walk::beginLoop(std::uint32_t index) {
  const LoopCommand &loop = code.loops[index];
  std::uint64_t trip = loop.trip;
  if (loop.count != LoopCommand::kNoCount && !isIdle())
    trip = std::min(trip, static_cast<std::uint64_t>(std::max(
                              0, readCount(code.pointers[loop.count]))));
  idleTrips[index] = visitsAll ? loop.trip - trip : 0;
  trips[index] = tripsLeft[index] = visitsAll ? loop.trip : trip;
  if (tripsLeft[index] == 0)
    position = loop.endCommand + 1;
  else if (tripsLeft[index] == idleTrips[index] && !isIdle())
    idle = index;
  if (loop.count != LoopCommand::kNoCount && tripsLeft[index] != 0 &&
      outer == LoopCommand::kNoCount) {
    outer = index;
    place = {++countedLoops, 0, code.pointers[loop.count], loop.trip};
  }
}

void Walk::endIteration(std::uint32_t index) {
  const LoopCommand &loop = code.loops[index];
  const bool again = --tripsLeft[index] != 0;
  if (idle == index && !again)
    idle = LoopCommand::kNoCount;
  else if (again && tripsLeft[index] == idleTrips[index] && !isIdle())
    idle = index;
  if (outer == index) {
    ++place.iteration;
    if (!again) {
      outer = LoopCommand::kNoCount;
      place = {};
    }
  }
  for (std::uint32_t i = loop.firstAdvance; i < loop.endAdvance; ++i) {
    const Advance &advance = code.advances[i];
    void *&pointer = code.pointers[advance.pointer];
    auto *address = static_cast<std::byte *>(pointer);
    pointer = again ? address + advance.stride
                    : address - advance.stride * (trips[index] - 1);
  }
  if (again)
    position = loop.firstCommand;
}

Commands flatten(const artifact::DeviceCode &code,
                 const artifact::Program &program,
                 const SpaceAddresses &spaces) {
  Flattener flattener(code, spaces);
  flattener.nodes(*program.steps());
  return flattener.take();
}

} // namespace tessera::hal
