// Assigns locations to tensors in program order, in place wherever that is
// safe.
#include "passes/planning/ProgramPlanner.h"
#include "dialects/graph/GraphExchangeOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;
using graph::tensorType;

ProgramPlanner::ProgramPlanner(func::FuncOp function,
                               const llvm::StringMap<Buffer *> &state,
                               const llvm::StringMap<tile::KernelOp> &kernels)
    : function(function), state(state), kernels(kernels), order(function) {}

LogicalResult ProgramPlanner::run() {
  for (auto &entry : state) // of the previous program
    entry.second->lastRead = -1;
  if (failed(bindArguments()))
    return failure();
  wantReturns();
  wantParts();
  if (failed(plan(function.getBody().front(), 0, steps)))
    return failure();
  int64_t position = 0;
  number(steps, position);
  SmallVector<const Step *> loops;
  touch(steps, loops);
  findIdle(steps);
  return success();
}

//===--- locations --------------------------------------------------------===//

Buffer *ProgramPlanner::newBuffer(RankedTensorType type, size_t depth) {
  Buffer &buffer = buffers.emplace_back();
  buffer.bytes = plan::byteSize(type);
  buffer.type = type;
  buffer.depth = depth;
  return &buffer;
}

Buffer *ProgramPlanner::newIo(StringRef name, plan::Role role,
                              RankedTensorType type, DictionaryAttr attrs) {
  Buffer *buffer = newBuffer(type, 0);
  buffer->global = attrs.getAs<DenseI64ArrayAttr>(dist::kGlobalShapeAttr);
  buffer->sharding = attrs.getAs<dist::ShardingAttr>(dist::kShardingAttr);
  buffer->space = plan::Space::io;
  buffer->name = StringAttr::get(function.getContext(), name);
  buffer->role = role;
  buffer->reserved = true;
  buffer->offset = ioBytes;
  ioBytes += llvm::alignTo(buffer->bytes, plan::kAlignment);
  return buffer;
}

void ProgramPlanner::put(Value value, const Place &place) {
  locations[value] = place;
  place.buffer->lastRead =
      std::max(place.buffer->lastRead, order.lastRead(value));
}

LogicalResult ProgramPlanner::bindArguments() {
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    if (auto name = function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr))
      put(argument, {state.lookup(name.getValue()), 0, {}});
    else if (auto name =
                 function.getArgAttrOfType<StringAttr>(i, graph::kInputAttr))
      put(argument, {newIo(name.getValue(), plan::Role::input,
                           tensorType(argument), function.getArgAttrDict(i)),
                     0,
                     {}});
    else
      return function.emitOpError("argument ")
             << i << " is neither state (" << graph::kStateAttr
             << ") nor input (" << graph::kInputAttr << ")";
  }
  return success();
}

// Returned state is preferably written at its own location, outputs where the
// host reads them.
void ProgramPlanner::wantReturns() {
  Operation *ret = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(ret->getOperands())) {
    if (auto name =
            function.getResultAttrOfType<StringAttr>(i, graph::kStateAttr))
      want(value, state.lookup(name.getValue()));
    else if (auto name = function.getResultAttrOfType<StringAttr>(
                 i, graph::kOutputAttr))
      want(value, newIo(name.getValue(), plan::Role::output, tensorType(value),
                        function.getResultAttrDict(i)));
  }
}

void ProgramPlanner::want(Value value, Buffer *buffer) {
  while (isa_and_nonnull<graph::ReshapeOp, dist::WaitOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  wanted.try_emplace(value, buffer);
  // An all-reduce is done in place of its operand.
  if (auto sum = value.getDefiningOp<dist::AllReduceOp>();
      sum && sum.getInput().hasOneUse())
    want(sum.getInput(), buffer);
}

// Whether `output`, made by `at`, may overwrite `buffer`: all readers of its
// present value precede it. `through` is the operand that the kernel reads
// before it overwrites it, element by element; null if there is none.
bool ProgramPlanner::mayOverwrite(Buffer *buffer, Value output, Operation *at,
                                  Value through) const {
  if (buffer->reserved && wanted.lookup(output) != buffer)
    return false;
  if (plan::byteSize(typeOf(output)) != buffer->bytes)
    return false;
  int64_t now = order.begin(at);
  if (buffer->lastRead > now || (buffer->lastRead == now && !through))
    return false;
  if (!through)
    return true;
  return countOperands(at, buffer) == 1;
}

// All of an op's operands at once: a merged launch has thousands.
unsigned ProgramPlanner::countOperands(Operation *op, Buffer *buffer) const {
  if (counted.op != op) {
    counted.op = op;
    counted.byBuffer.clear();
    for (Value operand : op->getOperands())
      if (auto place = locations.find(operand); place != locations.end())
        ++counted.byBuffer[place->second.buffer];
  }
  return counted.byBuffer.lookup(buffer);
}

std::optional<Place> ProgramPlanner::placeOver(Operation *at, Value input,
                                               Value output) const {
  auto place = locations.find(input);
  if (place == locations.end() || place->second.offset != 0 ||
      !place->second.advances.empty())
    return std::nullopt;
  Buffer *preferred = wanted.lookup(output);
  if ((preferred && preferred != place->second.buffer) ||
      parts.contains(output))
    return std::nullopt;
  if (!mayOverwrite(place->second.buffer, output, at, input))
    return std::nullopt;
  return place->second;
}

Place ProgramPlanner::placeFresh(Value output, size_t depth) {
  if (auto part = parts.find(output); part != parts.end())
    return {bufferOf(part->second.first, depth), part->second.second, {}};
  Buffer *preferred = wanted.lookup(output);
  if (preferred && mayOverwrite(preferred, output, output.getDefiningOp(), {}))
    return {preferred, 0, {}};
  return {newBuffer(typeOf(output), depth), 0, {}};
}

//===--- the walk ---------------------------------------------------------===//

LogicalResult ProgramPlanner::plan(Block &block, size_t depth,
                                   std::vector<Step> &out) {
  for (Operation &op : block) {
    LogicalResult done =
        llvm::TypeSwitch<Operation *, LogicalResult>(&op)
            .Case([&](tile::LaunchOp launch) {
              return planLaunch(launch, depth, out);
            })
            .Case(
                [&](graph::LoopOp loop) { return planLoop(loop, depth, out); })
            .Case([&](graph::DynamicUpdateOp update) {
              return planUpdate(update, depth, out);
            })
            .Case([&](dist::CollectiveOpInterface collective) {
              return planCollective(collective, depth, out);
            })
            .Case([&](dist::WaitOp wait) { return planWait(wait, out); })
            .Case([&](dist::PackOp pack) { return planPack(pack, depth, out); })
            .Case([&](graph::ConcatOp stack) {
              return planStack(stack, depth, out);
            })
            .Case([&](dist::UnpackOp unpack) {
              return planUnpack(unpack, depth, out);
            })
            .Case([&](func::ReturnOp ret) { return finishReturns(ret, out); })
            .Case<graph::ConstantOp, graph::YieldOp>(
                [](auto) { return success(); })
            .Default([&](Operation *other) { return planView(other); });
    if (failed(done))
      return failure();
  }
  return success();
}

LogicalResult ProgramPlanner::planView(Operation *op) {
  if (!isView(op))
    return op->emitOpError("cannot be planned: only launches, loops, "
                           "collectives, contiguous views and tables of rows "
                           "have locations");
  auto input = locations.find(op->getOperand(0));
  if (input == locations.end())
    return op->emitOpError(
        "is a view of a constant or of an induction variable, "
        "which have no location; fold it");
  Place place = input->second;
  if (auto slice = dyn_cast<graph::SliceOp>(op))
    place.offset += *contiguousOffset(slice);
  if (auto slice = dyn_cast<graph::DynamicSliceOp>(op)) {
    auto index = dyn_cast<BlockArgument>(slice.getIndex());
    auto loop = index ? dyn_cast<graph::LoopOp>(index.getOwner()->getParentOp())
                      : graph::LoopOp();
    if (!loop || index.getArgNumber() != 0)
      return op->emitOpError(
          "index must be the induction value of a graph.loop");
    place.advances.emplace_back(loop,
                                plan::byteSize(tensorType(slice.getResult())));
  }
  put(op->getResult(0), place);
  return success();
}

FailureOr<Typed> ProgramPlanner::read(Value value, Operation *user,
                                      size_t depth, std::vector<Step> &out) {
  if (auto place = locations.find(value); place != locations.end())
    return Typed{place->second, tensorType(value)};
  Place place{newBuffer(tensorType(value), depth), 0, {}};
  if (failed(initialize(value, place, user, out)))
    return failure();
  return Typed{place, tensorType(value)};
}

// Copies the contents of `from` to `to`: a fill for a constant, a copy
// otherwise.
LogicalResult ProgramPlanner::initialize(Value from, const Place &to,
                                         Operation *at,
                                         std::vector<Step> &out) {
  RankedTensorType type = tensorType(from);
  if (auto constant = from.getDefiningOp<graph::ConstantOp>()) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (!dense || !dense.isSplat() ||
        llvm::any_of(dense.getRawData(), [](char byte) { return byte != 0; }))
      return at->emitOpError(
          "requires a constant that is not zero, which only kernels can write");
    out.push_back({Step::fill, at->getLoc(), at, {{to, type}}, {}});
    return success();
  }
  auto place = locations.find(from);
  if (place == locations.end())
    return at->emitOpError(
        "reads an induction variable, which has no location; "
        "run materialize-induction-variables");
  out.push_back(
      {Step::copy, at->getLoc(), at, {{place->second, type}, {to, type}}, {}});
  return success();
}

// The buffers of one instance in the kernel's order, inputs and outputs placed.
LogicalResult ProgramPlanner::planInstance(tile::LaunchOp launch,
                                           tile::KernelOp kernel,
                                           int64_t instance, size_t depth,
                                           std::vector<Step> &out, Step &step) {
  OperandRange inputs = launch.getInstanceInputs(instance);
  ResultRange outputs = launch.getInstanceOutputs(instance);
  ArrayRef<int64_t> reuse = launch.getReuse().value_or(ArrayRef<int64_t>());
  size_t nextInput = 0, nextOutput = 0;
  for (size_t i = 0, e = kernel.getAccess().size(); i < e; ++i) {
    tile::Access access = kernel.getBufferAccess(i);
    if (access == tile::Access::read) {
      FailureOr<Typed> operand = read(inputs[nextInput++], launch, depth, out);
      if (failed(operand))
        return failure();
      step.operands.push_back(*operand);
      continue;
    }
    Value output = outputs[nextOutput];
    std::optional<Place> place;
    if (access == tile::Access::read_write) { // in place, or on a copy
      Value input = inputs[nextInput++];
      place = placeOver(launch, input, output);
      if (!place) {
        place = placeFresh(output, depth);
        if (failed(initialize(input, *place, launch, out)))
          return failure();
      }
    } else {
      for (size_t p = 0; p < reuse.size() && !place; p += 2)
        if (reuse[p + 1] == static_cast<int64_t>(nextOutput))
          place = placeOver(launch, inputs[reuse[p]], output);
      if (!place)
        place = placeFresh(output, depth);
    }
    ++nextOutput;
    put(output, *place);
    step.operands.push_back({*place, tensorType(output)});
  }
  return success();
}

LogicalResult ProgramPlanner::planLaunch(tile::LaunchOp launch, size_t depth,
                                         std::vector<Step> &out) {
  tile::KernelOp kernel = kernels.lookup(launch.getKernel());
  if (!kernel)
    return launch.emitOpError("launches @")
           << launch.getKernel() << ", which no target defines";
  auto count = [&](tile::Access other) { // buffers that are not only `other`
    return llvm::count_if(
        llvm::seq<size_t>(0, kernel.getAccess().size()),
        [&](size_t i) { return kernel.getBufferAccess(i) != other; });
  };
  int64_t instances = launch.getNumInstances();
  if (static_cast<int64_t>(launch.getInputs().size()) !=
          count(tile::Access::write) * instances ||
      static_cast<int64_t>(launch.getOutputs().size()) !=
          count(tile::Access::read) * instances)
    return launch.emitOpError("operands and results do not match kernel @")
           << launch.getKernel();
  Step step{Step::launch, launch.getLoc(), launch, {}, {}};
  for (int64_t instance = 0; instance < instances; ++instance)
    if (failed(planInstance(launch, kernel, instance, depth, out, step)))
      return failure();
  out.push_back(std::move(step));
  return success();
}

LogicalResult ProgramPlanner::planUpdate(graph::DynamicUpdateOp update,
                                         size_t depth, std::vector<Step> &out) {
  auto index = dyn_cast<BlockArgument>(update.getIndex());
  auto loop = index ? dyn_cast<graph::LoopOp>(index.getOwner()->getParentOp())
                    : graph::LoopOp();
  if (!loop || index.getArgNumber() != 0)
    return update.emitOpError(
        "index must be the induction value of a graph.loop");
  Value input = update.getInput(), output = update.getResult();
  auto place = locations.find(input);
  Place target;
  if (place != locations.end() && place->second.offset == 0 &&
      place->second.advances.empty() &&
      mayOverwrite(place->second.buffer, output, update, input)) {
    target = place->second;
  } else {
    target = placeFresh(output, depth);
    if (failed(initialize(input, target, update, out)))
      return failure();
  }
  Place entry = target;
  entry.advances.emplace_back(loop,
                              plan::byteSize(tensorType(update.getUpdate())));
  put(output, target);
  return initialize(update.getUpdate(), entry, update, out);
}

LogicalResult ProgramPlanner::finishReturns(func::ReturnOp ret,
                                            std::vector<Step> &out) {
  for (auto [i, value] : llvm::enumerate(ret.getOperands())) {
    Buffer *target = nullptr;
    if (auto name =
            function.getResultAttrOfType<StringAttr>(i, graph::kStateAttr)) {
      target = state.lookup(name.getValue());
    } else if (auto name = function.getResultAttrOfType<StringAttr>(
                   i, graph::kOutputAttr)) {
      for (Buffer &buffer : buffers)
        if (buffer.role == plan::Role::output && buffer.name == name)
          target = &buffer;
    } else {
      return function.emitOpError("result ")
             << i << " is neither state nor output";
    }
    auto place = locations.find(value);
    if (place != locations.end() && place->second == Place{target, 0, {}})
      continue;
    // Old state under a new name would have to be saved before it is
    // overwritten. A value made here is final wherever it is.
    Value source = value;
    while (source.getDefiningOp() && isView(source.getDefiningOp()))
      source = source.getDefiningOp()->getOperand(0);
    if (place != locations.end() && isa<BlockArgument>(source) &&
        place->second.buffer->space == plan::Space::state)
      return function.emitOpError("result ")
             << i << " returns state \""
             << place->second.buffer->name.getValue()
             << "\" under another name";
    if (failed(initialize(value, {target, 0, {}}, ret, out)))
      return failure();
  }
  return success();
}
