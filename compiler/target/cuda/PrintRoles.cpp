// Warp-specialized kernels: a ring of stages, the producer thread that fills
// them, the consumer warpgroups that use them.
#include "compiler/target/cuda/KernelPrinter.h"

using namespace mlir;

namespace tessera::cuda {

static constexpr int64_t kWarpgroup = 128; // threads

//===--- tensor maps ------------------------------------------------------===//

// The tensor map of a copy: dimensions innermost first, which are columns,
// rows, and the others from the last one.
static device::TensorBoxes boxesOf(tile::BulkCopyOp op) {
  MemRefType source = op.getSource().getType(),
             target = op.getTarget().getType();
  uint64_t bytes = source.getElementTypeBitWidth() / 8;
  SmallVector<int64_t> strides;
  int64_t offset;
  // The verifier has checked that they are constants.
  (void)getStridesAndOffset(source, strides, offset);
  device::TensorBoxes boxes;
  boxes.element = device::MapElement::bf16;
  boxes.base = static_cast<uint64_t>(offset) * bytes;
  boxes.rank = 0;
  auto add = [&](int64_t dim, int64_t box) {
    uint32_t i = boxes.rank++;
    boxes.sizes[i] = static_cast<uint64_t>(source.getDimSize(dim));
    boxes.box[i] = static_cast<uint32_t>(box);
    constexpr uint64_t kLeast = 16; // stride of a single element: any
    if (i)
      boxes.strides[i - 1] = source.getDimSize(dim) == 1
                                 ? kLeast
                                 : static_cast<uint64_t>(strides[dim]) * bytes;
  };
  // As SharedTile (Shared.cuh) divides its columns into panels.
  int64_t row = target.getDimSize(2) * static_cast<int64_t>(bytes),
          span = row % 128 == 0  ? 128
                 : row % 64 == 0 ? 64
                                 : 32;
  boxes.swizzle = span == 128  ? device::Swizzle::b128
                  : span == 64 ? device::Swizzle::b64
                               : device::Swizzle::b32;
  ArrayRef<int64_t> along = op.getAlong();
  add(along[1], span / static_cast<int64_t>(bytes));
  add(along[0], target.getDimSize(1));
  for (int64_t dim = source.getRank(); dim-- > 0;)
    if (!llvm::is_contained(along, dim))
      add(dim, 1);
  return boxes;
}

// Copies of equal boxes from one view share a map.
void KernelPrinter::findMaps() {
  kernel.walk([&](tile::WarpSpecializeOp op) { roles = op; });
  if (roles)
    shape.threads += roles.getRegisters() ? kWarpgroup : 32;
  SmallVector<tile::BulkCopyOp> firsts;
  kernel.walk([&](tile::BulkCopyOp op) {
    for (auto [i, first] : llvm::enumerate(firsts))
      if (first.getSource() == op.getSource() &&
          first.getAlong() == op.getAlong() &&
          first.getTarget().getType() == op.getTarget().getType()) {
        mapOf[op] = i;
        return;
      }
    Value buffer = op.getSource();
    while (auto view = buffer.getDefiningOp<memref::ReinterpretCastOp>())
      buffer = view.getSource();
    mapOf[op] = firsts.size();
    firsts.push_back(op);
    unsigned number = alignBuffer(cast<BlockArgument>(buffer));
    shape.maps.push_back({number, boxesOf(op)});
  });
}

//===--- rings ------------------------------------------------------------===//

llvm::Error KernelPrinter::printRing(tile::MakeRingOp op) {
  tile::RingType type = op.getRing().getType();
  std::string name = fresh("ring");
  line("Pipeline<" + llvm::Twine(type.getStages()) + ", " +
       llvm::Twine(type.getConsumers()) + "> " + name + "(sharedMemory() + " +
       llvm::Twine(shape.sharedBytes) + ");");
  line(name + ".make();");
  constexpr int64_t kBarriers = 2, kBarrierBytes = 8; // of a stage
  shape.sharedBytes = llvm::alignTo(
      shape.sharedBytes + kBarriers * kBarrierBytes * type.getStages(), 128);
  values[op.getRing()] = {name};
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printBulkCopy(tile::BulkCopyOp op) {
  if (!op.getSource().getType().getElementType().isBF16())
    return unsupported(op, "copies only bf16");
  std::string stage = scalar(op.getStage()).text,
              text = "bring(" + memories[op.getTarget()].base + "[" + stage +
                     "], " + maps[mapOf[op]] + ", " +
                     scalar(op.getRing()).text + ".full(" + stage + ")";
  ArrayRef<int64_t> along = op.getAlong();
  auto add = [&](int64_t dim) {
    text += ", " + scalar(op.getIndices()[dim]).text;
  };
  add(along[1]);
  add(along[0]);
  for (int64_t dim = op.getSource().getType().getRank(); dim-- > 0;)
    if (!llvm::is_contained(along, dim))
      add(dim);
  line(text + ");");
  return llvm::Error::success();
}

//===--- warp specialization ----------------------------------------------===//

llvm::Error KernelPrinter::printRoles(tile::WarpSpecializeOp op) {
  int64_t consumers = (*kernel.getWarps())[0] / 4;
  std::optional<ArrayRef<int64_t>> registers = op.getRegisters();
  std::string mine = "electLane()";
  if (registers) // a whole warpgroup, of which one warp is active
    mine = "warp() == " + std::to_string(4 * consumers) + " && " + mine;
  line("if (warpgroup() == " + llvm::Twine(consumers) + ") {");
  ++depth;
  if (registers)
    line("releaseRegisters<" + llvm::Twine((*registers)[0]) + ">();");
  line("if (" + mine + ") {");
  ++depth;
  for (const std::string &boxes : maps)
    line("acquireMap(" + boxes + ");");
  if (llvm::Error error = printBlock(op.getProducer().front()))
    return error;
  --depth;
  line("}");
  --depth;
  line("} else {");
  ++depth;
  if (registers)
    line("acquireRegisters<" + llvm::Twine((*registers)[1]) + ">();");
  barrier = "sync(1, " + std::to_string(consumers * kWarpgroup) + ");";
  bool haveTurns = false;
  op.getConsumers().walk([&](tile::PingPongOp) { haveTurns = true; });
  if (haveTurns) {
    turns = fresh("Turn");
    line("using " + turns + " = Turns<" + llvm::Twine(consumers) + ">;");
    line(turns + "::begin();");
  }
  if (llvm::Error error = printBlock(op.getConsumers().front()))
    return error;
  if (haveTurns)
    line(turns + "::end();");
  --depth;
  line("}");
  return llvm::Error::success();
}

// In place: registers of a product in flight must keep their name.
llvm::Error KernelPrinter::printMmaAsync(tile::MmaAsyncOp op) {
  auto type = cast<VectorType>(op.getResult().getType());
  ArrayRef<int64_t> warps = *kernel.getWarps();
  if (type.getDimSize(0) != 16 * warps[0] || type.getDimSize(1) > 256 ||
      !cast<VectorType>(op.getLhs().getType()).getElementType().isBF16())
    return unsupported(op, "requires bf16, 64 rows for each warpgroup, and at "
                           "most 256 columns");
  // A loop's variable, also after the loop, or that of the previous product;
  // otherwise a new one.
  Value from = op.getAccumulator();
  bool isOfLoop = isa<BlockArgument>(from) ||
                  (from.getDefiningOp<scf::ForOp>() && from.hasOneUse() &&
                   from.getDefiningOp()->getBlock() == op->getBlock());
  std::string sum, function = "multiplyAsync(";
  if (isOfLoop || from.getDefiningOp<tile::MmaAsyncOp>()) {
    sum = scalar(from).text;
  } else {
    sum = fresh("sum");
    bool isZero = matchPattern(from, m_AnyZeroFloat());
    line(typeOf(from) + " " + sum + (isZero ? "" : " = " + tile(from)) + ";");
    if (isZero)
      function = "multiplyAsync</*Accumulates=*/false>(";
  }
  line(function + tile(op.getLhs()) + ", " + tile(op.getRhs()) + ", " + sum +
       ");");
  values[op.getResult()] = {sum};
  return llvm::Error::success();
}

// The ring whose stage a sum's last product reads, if work on another sum,
// waited for after its start, precedes the wait for it; otherwise null.
static Value ringOfWorkBefore(tile::MmaWaitOp wait) {
  auto start = wait.getSum().getDefiningOp<tile::MmaAsyncOp>();
  if (!start || start->getBlock() != wait->getBlock())
    return {};
  bool isAfterOther = false, isWork = false;
  for (Operation *op = start; op != wait; op = op->getNextNode()) {
    bool isOther = isa<tile::MmaWaitOp>(op);
    isAfterOther |= isOther;
    isWork = !isOther && isAfterOther &&
             (isWork || llvm::any_of(op->getResultTypes(), isTile));
  }
  auto operand = start.getRhs().getDefiningOp<tile::LoadOp>();
  if (!isWork || !operand)
    return {};
  auto stage = operand.getIndices()[0].getDefiningOp<tile::AwaitOp>();
  return stage ? stage.getRing() : Value();
}

// Ops that print as about one line.
llvm::Error KernelPrinter::printInRole(Operation *op) {
  auto ring = [&](Value of) { return scalar(of).text; };
  if (auto acquire = dyn_cast<tile::AcquireOp>(op)) {
    define(acquire.getStage(), "at",
           ring(acquire.getRing()) + ".acquire(" +
               llvm::Twine(acquire.getBytes()) + ")");
  } else if (auto await = dyn_cast<tile::AwaitOp>(op)) {
    define(await.getStage(), "at", ring(await.getRing()) + ".await()");
  } else if (auto release = dyn_cast<tile::ReleaseOp>(op)) {
    line(ring(release.getRing()) +
         (release.getLast() ? ".releaseLast();" : ".release();"));
  } else if (auto wait = dyn_cast<tile::MmaWaitOp>(op)) {
    if (Value used = ringOfWorkBefore(wait))
      line(ring(used) + ".meanwhile();");
    values[wait.getResult()] = scalar(wait.getSum());
    line("wgmmaWait<" + llvm::Twine(wait.getPending()) + ">(" +
         scalar(wait.getSum()).text + ".at);");
  } else {
    line(turns + (cast<tile::PingPongOp>(op).getTurn() == tile::Turn::take
                      ? "::take();"
                      : "::pass();"));
  }
  return llvm::Error::success();
}

} // namespace tessera::cuda
