// Loops: each carried value has one buffer, in which every iteration finds it.
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/planning/ProgramPlanner.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;
using graph::tensorType;

// The operands that may be in the memory of an output of a launch.
static SmallVector<Value>
overwritableBy(OpResult output,
               const llvm::StringMap<tile::KernelOp> &kernels) {
  auto launch = cast<tile::LaunchOp>(output.getOwner());
  tile::KernelOp kernel = kernels.lookup(launch.getKernel());
  if (!kernel)
    return {};
  int64_t outputs = launch.getOutputs().size() / launch.getNumInstances(),
          number = output.getResultNumber();
  OperandRange inputs = launch.getInstanceInputs(number / outputs);
  number %= outputs;
  SmallVector<Value> found;
  int64_t nextInput = 0, nextOutput = 0;
  for (size_t i = 0, e = kernel.getAccess().size(); i < e; ++i) {
    tile::Access access = kernel.getBufferAccess(i);
    if (access == tile::Access::read_write && nextOutput == number)
      found.push_back(inputs[nextInput]);
    nextInput += access != tile::Access::write;
    nextOutput += access != tile::Access::read;
  }
  ArrayRef<int64_t> reuse = launch.getReuse().value_or(ArrayRef<int64_t>());
  for (size_t p = 0; p < reuse.size(); p += 2)
    if (reuse[p + 1] == number)
      found.push_back(inputs[reuse[p]]);
  return found;
}

static Value throughReshapes(Value value) {
  while (value.getDefiningOp<graph::ReshapeOp>())
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

// A carried sum to which an iteration adds several times, such as a gradient of
// several microbatches: what it is in between is in the same buffer, also where
// a loop inside adds to it.
void ProgramPlanner::wantSteps(Value yielded, BlockArgument carried,
                               Buffer *buffer) {
  SmallVector<Value> steps;
  Value value = throughReshapes(yielded);
  while (value != carried) {
    auto output = dyn_cast<OpResult>(value);
    if (!output || output.getOwner()->getBlock() != carried.getOwner())
      return;
    if (auto inner = dyn_cast<graph::LoopOp>(output.getOwner())) {
      value = throughReshapes(inner.getInits()[output.getResultNumber()]);
      steps.push_back(value);
      continue;
    }
    if (!isa<tile::LaunchOp>(output.getOwner()))
      return;
    SmallVector<Value> before =
        llvm::map_to_vector(overwritableBy(output, kernels), throughReshapes);
    // With two operands to choose from, the sum is the carried value itself.
    if (before.size() != 1 && !llvm::is_contained(before, carried))
      return;
    value = before.size() == 1 ? before.front() : Value(carried);
    steps.push_back(value);
  }
  for (Value step : steps)
    wanted.try_emplace(step, buffer);
}

LogicalResult ProgramPlanner::planLoop(graph::LoopOp loop, size_t depth,
                                       std::vector<Step> &out) {
  SmallVector<Buffer *> carried;
  SmallVector<bool> wasReserved; // by a loop around this one
  for (auto [init, argument] : llvm::zip(loop.getInits(), loop.getCarried())) {
    // The initial value's own buffer is used if it has no other reader.
    auto place = locations.find(init);
    bool own = place != locations.end() && place->second.offset == 0 &&
               place->second.advances.empty() &&
               (place->second.buffer->depth == depth ||
                wanted.lookup(init) == place->second.buffer) &&
               !llvm::is_contained(carried, place->second.buffer) &&
               llvm::count(loop.getInits(), init) == 1 &&
               mayOverwrite(place->second.buffer, init, loop, init);
    Buffer *buffer =
        own ? place->second.buffer : newBuffer(tensorType(init), depth);
    if (!own && failed(initialize(init, {buffer, 0, {}}, loop, out)))
      return failure();
    wasReserved.push_back(std::exchange(buffer->reserved, true));
    carried.push_back(buffer);
    put(argument, {buffer, 0, {}});
  }
  for (auto [value, argument, buffer] :
       llvm::zip(loop.getYield().getValues(), loop.getCarried(), carried)) {
    want(value, buffer);
    wantSteps(value, argument, buffer);
  }

  Step step{Step::loop, loop.getLoc(), loop, {}, {}};
  if (loop.getCounted())
    step.operands.push_back(
        {{carried.front(), 0, {}}, tensorType(loop.getInits().front())});
  if (failed(plan(loop.getBody().front(), depth + 1, step.body)) ||
      failed(finishBody(loop, carried, depth + 1, step.body)))
    return failure();
  out.push_back(std::move(step));
  for (auto [result, buffer, before] :
       llvm::zip(loop.getResults(), carried, wasReserved)) {
    buffer->reserved = before;
    put(result, {buffer, 0, {}});
  }
  return success();
}

// Values that are not where the next iteration expects them are copied there. A
// value in another carried buffer is copied through a temporary, since copies
// may swap.
LogicalResult ProgramPlanner::finishBody(graph::LoopOp loop,
                                         ArrayRef<Buffer *> carried,
                                         size_t depth, std::vector<Step> &out) {
  std::vector<Step> moves;
  for (auto [value, buffer] : llvm::zip(loop.getYield().getValues(), carried)) {
    Place target{buffer, 0, {}};
    FailureOr<Typed> from = read(value, loop.getYield(), depth, out);
    if (failed(from))
      return failure();
    if (from->place == target)
      continue;
    if (llvm::is_contained(carried, from->place.buffer)) {
      Typed temporary{{newBuffer(from->type, depth), 0, {}}, from->type};
      out.push_back({Step::copy, loop.getLoc(), loop, {*from, temporary}, {}});
      from = temporary;
    }
    moves.push_back(
        {Step::copy, loop.getLoc(), loop, {*from, {target, from->type}}, {}});
  }
  llvm::move(moves, std::back_inserter(out));
  return success();
}
