#include "dialects/plan/PlanOps.h"

using namespace mlir;
using namespace tessera::plan;

//===--- buffers ----------------------------------------------------------===//

LogicalResult LoopOp::verify() {
  Block &body = getBody().front();
  if (body.getNumArguments() != 1 || !body.getArgument(0).getType().isIndex())
    return emitOpError(
        "body must have one index argument, the induction variable");
  if (Value count = getCount())
    if (auto type = cast<MemRefType>(count.getType());
        !type.getElementType().isInteger(32) || type.getNumElements() != 1)
      return emitOpError("expects a count of one i32, got ") << type;
  return success();
}

// A shard has both a global shape and a sharding.
template <typename Op> static LogicalResult verifyCut(Op op, MemRefType type) {
  if (op.getGlobal().has_value() != op.getSharding().has_value())
    return op.emitOpError("has one of `of` and `cut` without the other");
  if (!op.getGlobal())
    return success();
  auto rank = static_cast<size_t>(type.getRank());
  if (op.getGlobal()->size() != rank ||
      op.getSharding()->getDims().size() != rank)
    return op.emitOpError("is a shard of rank ")
           << rank << " of a tensor of rank " << op.getGlobal()->size()
           << " that is sharded in " << op.getSharding()->getDims().size()
           << " dimensions";
  if (op.getSharding()->isPartial())
    return op.emitOpError(
        "is a partial (unreduced) value, which cannot be stored");
  return success();
}

LogicalResult StateOp::verify() {
  return verifyCut(*this, cast<MemRefType>(getType()));
}

LogicalResult BufferOp::verify() {
  if (getOffset() % kAlignment)
    return emitOpError("offset ")
           << getOffset() << " is not a multiple of " << kAlignment;
  if (getSpace() != Space::arena && !getName())
    return emitOpError("a buffer in ")
           << stringifySpace(getSpace()) << " must have a name";
  if (std::optional<ArrayRef<int64_t>> lives = getLives()) {
    bool isGood = !lives->empty() && lives->size() % 2 == 0;
    for (size_t i = 1; isGood && i < lives->size(); ++i)
      isGood = i % 2 ? (*lives)[i - 1] <= (*lives)[i]
                     : (*lives)[i - 1] + 1 < (*lives)[i];
    if (!isGood)
      return emitOpError("`lives` must be first and last steps of ranges, "
                         "ascending, with steps in between");
  }
  return verifyCut(*this, cast<MemRefType>(getMemory().getType()));
}

// The view must be inside its buffer even in the last iteration of the loop.
LogicalResult ViewOp::verify() {
  int64_t last = 0;
  if (Value induction = getInduction()) {
    auto argument = dyn_cast<BlockArgument>(induction);
    auto loop = argument ? dyn_cast<LoopOp>(argument.getOwner()->getParentOp())
                         : LoopOp();
    if (!loop)
      return emitOpError(
          "may only advance with the induction variable of a plan.loop");
    if (!getStride() || static_cast<int64_t>(*getStride()) < 0)
      return emitOpError("requires a stride that is not negative");
    last = static_cast<int64_t>(*getStride()) *
           (static_cast<int64_t>(loop.getTrip()) - 1);
  }
  int64_t end = static_cast<int64_t>(getOffset()) + last +
                byteSize(cast<MemRefType>(getMemory().getType()));
  int64_t size = byteSize(cast<MemRefType>(getSource().getType()));
  if (end > size)
    return emitOpError("reaches byte ") << end << " of a buffer of " << size;
  return success();
}

LogicalResult LaunchOp::verify() {
  size_t n = getBlocks().size();
  if (n == 0 || getBuffers().size() % n || getSizes().size() % n)
    return emitOpError("buffers and sizes must divide evenly among ")
           << n << " instances";
  return success();
}

//===--- collectives ------------------------------------------------------===//

// How many elements `counts` adds up to; each of them is a size.
static FailureOr<int64_t> sumOfCounts(CollectiveOp op) {
  int64_t sum = 0;
  ArrayRef<int64_t> counts = *op.getCounts();
  for (int64_t count : counts)
    if (count < 0 || llvm::AddOverflow(sum, count, sum))
      return op.emitOpError("requires counts that are not negative");
  return sum;
}

// The side with the elements of all members, and that with the elements of one.
static LogicalResult verifyCounts(CollectiveOp op, int64_t all, int64_t mine) {
  FailureOr<int64_t> sum = sumOfCounts(op);
  if (failed(sum))
    return failure();
  if (*sum != all)
    return op.emitOpError("has counts of ")
           << *sum << " elements for a buffer of " << all;
  if (!llvm::is_contained(*op.getCounts(), mine))
    return op.emitOpError("has a buffer of ")
           << mine << " elements, which is not one of its counts";
  return success();
}

// Rows of one width, and two counts for each member.
static LogicalResult verifyRows(CollectiveOp op, MemRefType from,
                                MemRefType to) {
  if (from.getRank() != 2 || to.getRank() != 2 ||
      from.getDimSize(1) != to.getDimSize(1))
    return op.emitOpError("sends ") << from << " and receives " << to;
  auto rows = cast<MemRefType>(op.getRows().getType());
  if (!rows.getElementType().isInteger(32) || rows.getRank() != 2 ||
      (rows.getDimSize(0) != 2 && rows.getDimSize(0) != 4))
    return op.emitOpError("expects counts of type memref<2xNxi32> or "
                          "memref<4xNxi32>, got ")
           << rows;
  return success();
}

LogicalResult CollectiveOp::verify() {
  auto from = cast<MemRefType>(getFrom().getType()),
       to = cast<MemRefType>(getTo().getType());
  if (from.getElementType() != to.getElementType())
    return emitOpError("sends ") << from << " and receives " << to;
  CollectiveKind kind = getKind();
  bool reduces = kind == CollectiveKind::all_reduce ||
                 kind == CollectiveKind::reduce_scatter;
  if (reduces != getReduction().has_value())
    return emitOpError(reduces ? "lacks the reduction (`by`)"
                               : "has a reduction, but does not reduce");
  bool moves = kind == CollectiveKind::permute;
  bool exchanges = kind == CollectiveKind::exchange_rows;
  bool counts = kind != CollectiveKind::all_reduce && !moves && !exchanges;
  if (counts != getCounts().has_value() || moves != getTargets().has_value())
    return emitOpError("has counts or targets that it does not use, or lacks "
                       "those that it requires");
  if (exchanges != (getRows() != nullptr))
    return emitOpError(exchanges ? "lacks counts of rows (`rows`)"
                                 : "has counts of rows, but exchanges none");
  if (getTicket() &&
      (!getTicket().hasOneUse() ||
       (*getTicket().user_begin())->getBlock() != getOperation()->getBlock()))
    return emitOpError("must be waited for once, in the block where it starts");
  switch (kind) {
  case CollectiveKind::all_reduce:
    if (getFrom() != getTo())
      return emitOpError("all_reduce must be in place");
    return success();
  case CollectiveKind::all_gather:
    return verifyCounts(*this, to.getNumElements(), from.getNumElements());
  case CollectiveKind::reduce_scatter:
    return verifyCounts(*this, from.getNumElements(), to.getNumElements());
  case CollectiveKind::exchange_rows:
    return verifyRows(*this, from, to);
  case CollectiveKind::all_to_all:
  case CollectiveKind::permute:
    break;
  }
  if (from.getNumElements() != to.getNumElements())
    return emitOpError("sends ") << from << " and receives " << to;
  if (kind == CollectiveKind::permute)
    return success();
  FailureOr<int64_t> sum = sumOfCounts(*this);
  if (failed(sum))
    return failure();
  if (*sum != from.getNumElements() || !llvm::all_equal(*getCounts()))
    return emitOpError("all_to_all has counts that do not divide ")
           << from.getNumElements() << " elements evenly";
  return success();
}

LogicalResult WaitOp::verify() {
  if (!getCollective())
    return emitOpError("must wait for a started collective");
  return success();
}
