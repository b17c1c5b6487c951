// Liveness: when a tensor is read last, and the steps that access a buffer.
#include "passes/planning/ProgramPlanner.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;

static void assignPositions(
    Block &block,
    llvm::DenseMap<Operation *, std::pair<int64_t, int64_t>> &positions,
    int64_t &next) {
  for (Operation &op : block) {
    int64_t begin = next++;
    if (auto loop = dyn_cast<graph::LoopOp>(op)) {
      assignPositions(loop.getBody().front(), positions, next);
      positions[&op] = {begin, next++};
    } else {
      positions[&op] = {begin, begin};
    }
  }
}

Order::Order(func::FuncOp function) {
  int64_t next = 0;
  assignPositions(function.getBody().front(), positions, next);
}

int64_t Order::lastRead(Value value) const {
  int64_t last = -1;
  Block *home = value.getParentBlock();
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    Operation *here = home->findAncestorOpInBlock(*user);
    // A loop reads its initial values before its first iteration, and whatever
    // its body reads until its last.
    int64_t position =
        here == user && isa<graph::LoopOp>(user) ? begin(user) : end(here);
    // Likewise the tensors of a pack.
    if (auto unpack = dyn_cast<dist::UnpackOp>(user);
        unpack && here == user && unpack.getPieces() == 1)
      for (Value part : unpack.getOutputs())
        position = std::max(position, lastRead(part));
    if (isView(user))
      position = here == user ? lastRead(user->getResult(0)) : end(here);
    // The buffers of a started collective are live until its wait; all_reduce
    // is in place, or on a copy.
    if (here == user && isa<dist::WaitOp>(user))
      position = std::max(position, lastRead(user->getResult(0)));
    if (here == user && user->getNumResults() == 1 &&
        isa<dist::PendingType>(user->getResult(0).getType()) &&
        !cast<dist::CollectiveOpInterface>(user).isInPlace())
      for (Operation *wait : user->getResult(0).getUsers())
        position = std::max(position, begin(wait));
    last = std::max(last, position);
  }
  return last;
}

bool tessera::planning::isView(Operation *op) {
  if (auto slice = dyn_cast<graph::SliceOp>(op))
    return contiguousOffset(slice).has_value();
  return isa<graph::ReshapeOp, graph::DynamicSliceOp>(op);
}

std::optional<int64_t>
tessera::planning::contiguousOffset(graph::SliceOp slice) {
  ArrayRef<int64_t> from = graph::tensorType(slice.getInput()).getShape();
  ArrayRef<int64_t> to = graph::tensorType(slice.getResult()).getShape();
  // Dense iff every dimension after the first one with more than one entry is
  // whole.
  bool mustBeWhole = false;
  int64_t offset = 0;
  for (auto [start, whole, part] : llvm::zip(slice.getStart(), from, to)) {
    if (mustBeWhole && part != whole)
      return std::nullopt;
    mustBeWhole |= part > 1;
    offset = offset * whole + start;
  }
  return offset *
         plan::byteSize(RankedTensorType::get(
             {1}, graph::tensorType(slice.getResult()).getElementType()));
}

//===--- steps ------------------------------------------------------------===//

void ProgramPlanner::number(std::vector<Step> &list, int64_t &position) {
  for (Step &step : list) {
    step.begin = step.end = position++;
    if (step.kind == Step::loop) {
      number(step.body, position);
      step.end = position++;
    }
  }
}

void ProgramPlanner::touch(std::vector<Step> &list,
                           SmallVectorImpl<const Step *> &loops) {
  for (Step &step : list) {
    for (Typed &operand : step.operands) {
      Buffer *buffer = operand.place.buffer;
      // A value from outside a loop is live until the loop's last iteration.
      const Step &extent =
          buffer->depth < loops.size() ? *loops[buffer->depth] : step;
      buffer->first = buffer->first < 0 ? extent.begin
                                        : std::min(buffer->first, extent.begin);
      buffer->last = std::max(buffer->last, extent.end);
    }
    loops.push_back(&step);
    touch(step.body, loops);
    loops.pop_back();
  }
}

// Whether the step writes all of the operand's buffer and reads none of it.
bool ProgramPlanner::overwrites(const Step &step, size_t operand) const {
  const Typed &to = step.operands[operand];
  const Buffer *buffer = to.place.buffer;
  bool isWhole = to.place.offset == 0 && to.place.advances.empty() &&
                 plan::byteSize(to.type) == buffer->bytes;
  if (!isWhole)
    return false;
  switch (step.kind) {
  case Step::launch: {
    tile::KernelOp kernel =
        kernels.lookup(cast<tile::LaunchOp>(step.source).getKernel());
    return kernel.getBufferAccess(operand % kernel.getAccess().size()) ==
           tile::Access::write;
  }
  case Step::fill:
    return true;
  case Step::copy:
    return operand == 1;
  case Step::collective: // its result is last; alone it is read too
    return operand > 0 && operand + 1 == step.operands.size();
  case Step::loop:
  case Step::wait:
    return false;
  }
  llvm_unreachable("all kinds are handled");
}

static void collectBuffers(const Step &step,
                           llvm::SmallPtrSetImpl<Buffer *> &found) {
  for (const Typed &operand : step.operands)
    found.insert(operand.place.buffer);
  for (const Step &inner : step.body)
    collectBuffers(inner, found);
}

// Between an access and one that overwrites the buffer its bytes are free. That
// is so in each iteration of a loop if both are steps of its body.
void ProgramPlanner::findIdle(const std::vector<Step> &list) {
  llvm::DenseMap<Buffer *, int64_t> accessed;  // after which step
  llvm::DenseMap<Buffer *, unsigned> operands; // of one step
  for (const Step &step : list) {
    operands.clear();
    for (const Typed &operand : step.operands)
      ++operands[operand.place.buffer];
    for (size_t i = 0; i < step.operands.size(); ++i) {
      Buffer *buffer = step.operands[i].place.buffer;
      auto before = accessed.find(buffer);
      if (before != accessed.end() && before->second < step.begin &&
          operands.lookup(buffer) == 1 && overwrites(step, i))
        buffer->idle.push_back({before->second, step.begin - 1});
    }
    llvm::SmallPtrSet<Buffer *, 8> buffers;
    collectBuffers(step, buffers);
    for (Buffer *buffer : buffers)
      accessed[buffer] = step.end + 1;
    findIdle(step.body);
  }
}
