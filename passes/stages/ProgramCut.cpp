#include "passes/stages/ProgramCut.h"
#include "dialects/dist/DistOps.h"
#include "parallelism/pipeline/Lower.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;

FailureOr<pipeline::Schedule> stages::lowerTable(Operation *op,
                                                 StringRef text) {
  StatusOr<pipeline::Schedule> compute =
      pipeline::parseCsv(text, "dist.schedule");
  // A permute ends when both ranks have executed it.
  pipeline::LowerOptions options;
  options.costs.asyncTransfers = false;
  StatusOr<pipeline::Schedule> lowered =
      compute.ok() ? pipeline::lower(*compute, options) : compute.status();
  if (!lowered.ok())
    return op->emitError("schedule: ") << lowered.message();
  return lowered.take();
}

LogicalResult ProgramCut::build() {
  users.assign(function.getNumArguments(), Ranks(schedule.ranks));
  FailureOr<llvm::SetVector<Block *>> bodies = findBodies();
  if (failed(bodies))
    return failure();
  for (Block *body : *bodies)
    if (failed(addLoop(*body)))
      return failure();
  findResultsOfLoops();
  addUsers();
  return success();
}

// Where blocks are called: in loops over microbatches, of which the last may
// have backwards, or all outside of loops, without backwards.
FailureOr<llvm::SetVector<Block *>> ProgramCut::findBodies() {
  Block *outer = &function.getBody().front();
  llvm::SetVector<Block *> bodies;
  Block *back = nullptr;
  WalkResult walk = function.walk([&](func::CallOp call) {
    bool backward = call->hasAttr(dist::kBackwardStageAttr);
    if (!backward && !call->hasAttr(dist::kForwardStageAttr))
      return WalkResult::advance();
    Block *body = call->getBlock();
    if (backward && body == outer) {
      call.emitError("is a backward outside of a loop over microbatches");
      return WalkResult::interrupt();
    }
    bodies.insert(body);
    if (backward && !back)
      back = body;
    bool isLoop = isa<graph::LoopOp>(body->getParentOp()) &&
                  body->getParentOp()->getBlock() == outer;
    if ((body != outer && !isLoop) || (back && body != back) ||
        (bodies.size() > 1 && bodies.contains(outer))) {
      call.emitError("the blocks of @")
          << function.getName() << " are in several locations; expected one "
          << "loop with backwards, and before it only loops without";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  return bodies;
}

LogicalResult ProgramCut::addLoop(Block &body) {
  Operation *parent = body.getParentOp();
  auto own = parent->getAttrOfType<StringAttr>(dist::kScheduleAttr);
  FailureOr<pipeline::Schedule> table = schedule;
  if (own && isa<graph::LoopOp>(parent)) {
    table = lowerTable(parent, own);
    if (failed(table))
      return failure();
    if (table->ranks != schedule.ranks || table->stages != schedule.stages ||
        table->placement != schedule.placement)
      return parent->emitError("schedule: its stages are on other ranks than "
                               "those of the module's schedule");
  }
  return loops.emplace_back(std::make_unique<LoopCut>(body, std::move(*table)))
      ->build();
}

LoopCut *ProgramCut::loopOf(Operation *op) const {
  for (const auto &each : loops)
    if (op && each->loop == op)
      return each.get();
  return nullptr;
}

LoopCut *ProgramCut::whole() const {
  return loops.size() == 1 && !loops.front()->loop ? loops.front().get()
                                                   : nullptr;
}

void ProgramCut::findResultsOfLoops() {
  for (Operation &op : function.getBody().front().without_terminator())
    if (llvm::any_of(inputsOf(&op),
                     [&](Value input) { return isOfLoops(input); }))
      ofLoops.insert(&op);
}

void ProgramCut::addUsers() {
  for (const auto &each : loops)
    for (auto &[value, ranks] : each->users)
      if (!isOfLoops(value))
        for (unsigned argument : argumentsOf(value).set_bits())
          users[argument] |= ranks;
}

const llvm::SmallBitVector &ProgramCut::argumentsOf(Value value) {
  if (auto known = arguments.find(value); known != arguments.end())
    return known->second;
  llvm::SmallBitVector found(function.getNumArguments());
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (argument.getOwner() == &function.getBody().front())
      found.set(argument.getArgNumber());
  } else {
    for (Value input : inputsOf(value.getDefiningOp()))
      found |= argumentsOf(input);
  }
  return arguments[value] = found;
}
