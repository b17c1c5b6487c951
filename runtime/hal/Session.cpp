#include "runtime/hal/Session.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"
#include "runtime/support/ProcessMemory.h"

#include <algorithm>

namespace tessera::hal {
namespace {

using artifact::toView;

std::vector<TensorInfo> describeTensors(
    const flatbuffers::Vector<flatbuffers::Offset<artifact::Tensor>> &tensors) {
  std::vector<TensorInfo> list;
  list.reserve(tensors.size());
  for (const artifact::Tensor *tensor : tensors)
    if (toView(tensor->name()) != artifact::kOffsetsInput)
      list.push_back(
          {toView(tensor->name()), tensor->type(),
           std::span(tensor->shape()->data(), tensor->shape()->size()),
           tensor->role(), tensor->offset(), tensor->bytes(), tensor->decay(),
           tensor});
  return list;
}

const TensorInfo *findTensor(std::span<const TensorInfo> tensors,
                             std::string_view name) {
  const auto found = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const TensorInfo &tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

/// The tensor of a program's list if it has exactly `bytes` bytes.
StatusOr<const TensorInfo *>
wholeTensor(std::span<const TensorInfo> tensors, std::string_view program,
            std::string_view what, std::string_view name, std::uint64_t bytes) {
  const TensorInfo *tensor = findTensor(tensors, name);
  if (!tensor) {
    std::string names;
    for (const TensorInfo &known : tensors)
      names.append(names.empty() ? "" : ", ").append(known.name);
    return Status::error("program '{}' has no {} '{}': it has {}", program,
                         what, name, names.empty() ? "none" : names);
  }
  if (tensor->bytes != bytes)
    return Status::error("program '{}': {} '{}' of {}[{}] has {} bytes, got {}",
                         program, what, name,
                         artifact::EnumNameElementType(tensor->type),
                         fmt::join(tensor->shape, ", "), tensor->bytes, bytes);
  return tensor;
}

} // namespace

std::uint64_t TensorInfo::elements() const {
  return bytes / artifact::elementBytes(type);
}

std::string MemoryPlan::describe() const {
  return fmt::format("state {} + arena {} + io {} + scratch {} = {}",
                     gibibytes(state), gibibytes(arena), gibibytes(io),
                     gibibytes(scratch), gibibytes(peak()));
}

StatusOr<std::unique_ptr<Session>>
Session::open(const std::string &path, const SessionOptions &options) {
  auto reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  return open(*reader, options);
}

StatusOr<std::unique_ptr<Session>>
Session::open(const ArtifactReader &artifact, const SessionOptions &options) {
  auto device = createDevice(options.device, options.deviceOptions);
  if (!device.ok())
    return device.status();
  auto reader = artifact.forRank(options.mesh.rank);
  if (!reader.ok())
    return reader.status();
  TESSERA_RETURN_IF_ERROR(checkWorld(*reader, options.mesh));
  std::unique_ptr<Session> session(new Session(*reader, device.take()));
  TESSERA_RETURN_IF_ERROR(session->prepare(options));
  return session;
}

StatusOr<std::vector<const artifact::Program *>>
Session::chosenPrograms(const SessionOptions &options) const {
  const auto &all = *chosen->programs();
  if (options.programs.empty())
    return std::vector<const artifact::Program *>(all.begin(), all.end());
  std::vector<const artifact::Program *> list;
  for (const std::string &name : options.programs) {
    const artifact::Program *program = artifact::findProgram(*chosen, name);
    if (!program)
      return unknownProgram(name);
    list.push_back(program);
  }
  return list;
}

Status Session::prepare(const SessionOptions &options) {
  const auto part = owner->choose(reader);
  if (!part.ok())
    return part.status();
  chosen = *part;
  auto wanted = chosenPrograms(options);
  if (!wanted.ok())
    return wanted.status();
  stateTensors = describeTensors(*reader.share().state());
  for (std::size_t i = 0; i < stateTensors.size(); ++i)
    stateIndex.emplace(stateTensors[i].name, i);

  auto loaded = owner->load(reader, *chosen);
  if (!loaded.ok())
    return loaded.status();
  executable = loaded.take();
  std::uint64_t arenaBytes = 0;
  std::uint64_t ioBytes = 0;
  for (const artifact::Program *program : *wanted) {
    arenaBytes = std::max(arenaBytes, program->arena_bytes());
    ioBytes += program->io_bytes();
  }
  TESSERA_RETURN_IF_ERROR(
      owner->checkFree(reader.share().state_bytes() + arenaBytes + ioBytes));
  auto state = owner->allocate(reader.share().state_bytes(), "the state");
  if (!state.ok())
    return state.status();
  stateBuffer = state.take();
  // Programs run one after another, so they share one arena.
  auto arena = owner->allocate(arenaBytes, "the arena");
  if (!arena.ok())
    return arena.status();
  arenaBuffer = arena.take();
  if (options.mesh.world) {
    auto opened = MeshChannels::open(reader, *wanted, options.mesh);
    if (!opened.ok())
      return opened.status();
    channels = opened.take();
  }
  for (const artifact::Program *program : *wanted)
    TESSERA_RETURN_IF_ERROR(prepareProgram(*program, options.recordOptions));
  return Status::success();
}

Status Session::prepareProgram(const artifact::Program &program,
                               const RecordOptions &options) {
  const std::string_view name = toView(program.name());
  Prepared prepared;
  prepared.inputs = describeTensors(*program.inputs());
  prepared.outputs = describeTensors(*program.outputs());
  auto io = owner->allocate(program.io_bytes(),
                            fmt::format("the io of program '{}'", name));
  if (!io.ok())
    return io.status();
  prepared.io = io.take();
  TESSERA_RETURN_IF_ERROR(writeOffsets(program, *prepared.io));
  auto commands = owner->record(
      *executable, program,
      {stateBuffer.get(), arenaBuffer.get(), prepared.io.get(), channels.get()},
      options);
  if (!commands.ok())
    return commands.status();
  prepared.commands = commands.take();
  programs.insert_or_assign(name, std::move(prepared));
  return Status::success();
}

// Programs write no input, so once is enough.
Status Session::writeOffsets(const artifact::Program &program,
                             Buffer &io) const {
  for (const artifact::Tensor *input : *program.inputs())
    if (toView(input->name()) == artifact::kOffsetsInput)
      TESSERA_RETURN_IF_ERROR(io.write(
          input->offset(),
          std::as_bytes(std::span<const std::int32_t>(meshOffsets(reader)))));
  return Status::success();
}

MemoryPlan Session::memory() const {
  MemoryPlan plan;
  plan.state = stateBuffer->bytes();
  plan.arena = arenaBuffer->bytes();
  for (const auto &[name, prepared] : programs)
    plan.io += prepared.io->bytes();
  plan.scratch = executable->scratchBytes();
  return plan;
}

StatusOr<std::uint64_t> Session::residentBytes() const {
  std::vector<std::span<const std::byte>> regions = {executable->scratch()};
  const auto add = [&](const std::unique_ptr<Buffer> &buffer) {
    if (const std::byte *host = buffer->host())
      regions.emplace_back(host, buffer->bytes());
  };
  add(stateBuffer);
  add(arenaBuffer);
  for (const auto &[name, prepared] : programs)
    add(prepared.io);
  std::uint64_t total = 0;
  for (std::span<const std::byte> region : regions) {
    StatusOr<std::uint64_t> resident = tessera::residentBytes(region);
    if (!resident.ok())
      return resident.status();
    total += *resident;
  }
  return total;
}

const Session::Prepared *Session::find(std::string_view program) const {
  const auto found = programs.find(program);
  return found == programs.end() ? nullptr : &found->second;
}

bool Session::hasProgram(std::string_view program) const {
  return find(program) != nullptr;
}

Status Session::unknownProgram(std::string_view program) const {
  if (reader.hasProgram(program))
    return Status::error("{}: program '{}' was not prepared in this session",
                         reader.path(), program);
  return Status::error("{}: no program '{}': it has {}", reader.path(), program,
                       reader.programNames());
}

Status Session::unknownState(std::string_view name) const {
  return Status::error("{}: no state tensor '{}'", reader.path(), name);
}

Status Session::run(std::string_view program) {
  const Prepared *prepared = find(program);
  if (!prepared)
    return unknownProgram(program);
  return prepared->commands->run();
}

std::span<const TensorInfo> Session::inputs(std::string_view program) const {
  const Prepared *prepared = find(program);
  return prepared ? std::span(prepared->inputs) : std::span<const TensorInfo>();
}

std::span<const TensorInfo> Session::outputs(std::string_view program) const {
  const Prepared *prepared = find(program);
  return prepared ? std::span(prepared->outputs)
                  : std::span<const TensorInfo>();
}

const TensorInfo *Session::findState(std::string_view name) const {
  const auto found = stateIndex.find(name);
  return found == stateIndex.end() ? nullptr : &stateTensors[found->second];
}

Status Session::readState(std::string_view name, std::span<std::byte> to,
                          std::uint64_t offset) const {
  const TensorInfo *tensor = findState(name);
  if (!tensor)
    return unknownState(name);
  TESSERA_RETURN_IF_ERROR(checkRange(offset, to.size(), tensor->bytes, name));
  return stateBuffer->read(tensor->offset + offset, to);
}

Status Session::writeState(std::string_view name,
                           std::span<const std::byte> from,
                           std::uint64_t offset) {
  const TensorInfo *tensor = findState(name);
  if (!tensor)
    return unknownState(name);
  TESSERA_RETURN_IF_ERROR(checkRange(offset, from.size(), tensor->bytes, name));
  return stateBuffer->write(tensor->offset + offset, from);
}

std::span<std::byte> Session::stateInMemory(std::string_view name) {
  const TensorInfo *tensor = findState(name);
  std::byte *state = stateBuffer->host();
  if (!tensor || !state)
    return {};
  return {state + tensor->offset, tensor->bytes};
}

Status Session::writeInput(std::string_view program, std::string_view name,
                           std::span<const std::byte> from) {
  const Prepared *prepared = find(program);
  if (!prepared)
    return unknownProgram(program);
  const auto tensor =
      wholeTensor(prepared->inputs, program, "input", name, from.size());
  if (!tensor.ok())
    return tensor.status();
  return prepared->io->write((*tensor)->offset, from);
}

Status Session::readOutput(std::string_view program, std::string_view name,
                           std::span<std::byte> to) const {
  const Prepared *prepared = find(program);
  if (!prepared)
    return unknownProgram(program);
  const auto tensor =
      wholeTensor(prepared->outputs, program, "output", name, to.size());
  if (!tensor.ok())
    return tensor.status();
  return prepared->io->read((*tensor)->offset, to);
}

StatusOr<std::unique_ptr<CommandList>>
Session::record(const artifact::Program &made, Buffer &io,
                const RecordOptions &options) {
  TESSERA_RETURN_IF_ERROR(writeOffsets(made, io));
  return owner->record(
      *executable, made,
      {stateBuffer.get(), arenaBuffer.get(), &io, channels.get()}, options);
}

std::vector<const Profile *> Session::profiles() const {
  std::vector<const Profile *> list;
  for (const auto &[name, prepared] : programs)
    if (const Profile *profile = prepared.commands->profile())
      list.push_back(profile);
  return list;
}

} // namespace tessera::hal
