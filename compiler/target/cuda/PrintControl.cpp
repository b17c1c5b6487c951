// Blocks of ops, loops and branches.
#include "compiler/target/cuda/KernelPrinter.h"
#include "dialects/tile/TileQuantOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/gpu/InFlight.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace tessera::cuda {

//===--- ops --------------------------------------------------------------===//

llvm::Error KernelPrinter::printBlock(Block &block) {
  for (Operation &op : block)
    if (!op.hasTrait<OpTrait::IsTerminator>())
      if (llvm::Error error = printOp(&op))
        return error;
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, llvm::Error>(op)
      .Case([&](scf::ForOp o) { return printFor(o); })
      .Case([&](scf::IfOp o) { return printIf(o); })
      // Memory and barriers.
      .Case([&](memref::ReinterpretCastOp o) { return printView(o); })
      .Case([&](memref::LoadOp o) { return printElementLoad(o); })
      .Case([&](memref::StoreOp o) { return printElementStore(o); })
      .Case([&](tile::AllocOp o) { return printAlloc(o); })
      .Case([&](tile::LoadOp o) { return printLoad(o); })
      .Case([&](tile::StoreOp o) { return printStore(o); })
      .Case([&](tile::CopyOp o) { return printCopy(o); })
      .Case<tile::CommitOp, tile::WaitOp, tile::BarrierOp>(
          [&](auto) { return printSynchronization(op); })
      // Tiles.
      .Case([&](tile::IotaOp o) { return printIota(o); })
      .Case([&](tile::MmaOp o) { return printMma(o); })
      .Case([&](tile::MmaQuantizedOp o) { return printMmaQuantized(o); })
      .Case([&](tile::ReduceOp o) { return printReduce(o); })
      .Case([&](tile::SliceOp o) { return printSlice(o); })
      .Case([&](vector::InterleaveOp o) { return printInterleave(o); })
      .Case<vector::ExtractOp, vector::ExtractElementOp>(
          [&](auto) { return printExtract(op); })
      // Roles.
      .Case([&](tile::MakeRingOp o) { return printRing(o); })
      .Case([&](tile::WarpSpecializeOp o) { return printRoles(o); })
      .Case([&](tile::BulkCopyOp o) { return printBulkCopy(o); })
      .Case([&](tile::MmaAsyncOp o) { return printMmaAsync(o); })
      .Case<tile::AcquireOp, tile::AwaitOp, tile::ReleaseOp, tile::MmaWaitOp,
            tile::PingPongOp>([&](auto) { return printInRole(op); })
      .Default([&](Operation *) { return printArithmetic(op); });
}

llvm::Error KernelPrinter::printArithmetic(Operation *op) {
  if (isInlined(op))
    return llvm::Error::success();
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return printConstantTile(constant);
  if (isElementwise(op) || isa<arith::MulUIExtendedOp>(op))
    return printTile(op);
  return unsupported(op, "has no CUDA form");
}

llvm::Error KernelPrinter::printSlice(tile::SliceOp op) {
  define(op.getResult(), "part",
         "slice<" + layoutOf(op.getResult()) + ">(" + tile(op.getInput()) +
             ", " + scalar(op.getRow()).text + ", " +
             scalar(op.getColumn()).text + ")");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printInterleave(vector::InterleaveOp op) {
  define(op.getResult(), "tile",
         "interleave(" + tile(op.getLhs()) + ", " + tile(op.getRhs()) + ")");
  return llvm::Error::success();
}

// A reduction's result is a scalar here already.
llvm::Error KernelPrinter::printExtract(Operation *op) {
  Value from = op->getOperand(0);
  if (cast<VectorType>(from.getType()).getRank() != 0)
    return unsupported(op, "of a tile's element has no CUDA form");
  values[op->getResult(0)] = scalar(from);
  return llvm::Error::success();
}

//===--- loops and branches -----------------------------------------------===//

// `to` = what the terminator yields; through copies if a new value is computed
// from another old one.
llvm::Error KernelPrinter::assign(Operation *terminator,
                                  ArrayRef<std::string> to) {
  SmallVector<std::string> from;
  Operation *parent = terminator->getParentOp();
  for (auto [operand, result] :
       llvm::zip_equal(terminator->getOperands(), parent->getResults())) {
    std::string value = isTile(operand.getType())
                            ? tile(operand, layoutOf(result))
                            : scalar(operand).text;
    if (value.empty())
      return unsupported(terminator, "of a value without a CUDA form");
    if (to.size() > 1) {
      std::string name = fresh("next");
      line("const auto " + name + " = " + value + ";");
      value = name;
    }
    from.push_back(value);
  }
  for (auto [target, value] : llvm::zip_equal(to, from))
    if (target != value)
      line(target + " = " + value + ";");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printFor(scf::ForOp loop) {
  SmallVector<std::string> carried;
  for (auto [init, argument, result] : llvm::zip_equal(
           loop.getInitArgs(), loop.getRegionIterArgs(), loop.getResults())) {
    std::string name = fresh("sum");
    line(typeOf(argument) + " " + name + " = " +
         (isTile(init.getType()) ? tile(init, layoutOf(argument))
                                 : scalar(init).text) +
         ";");
    carried.push_back(name);
    for (Value each : {Value(argument), Value(result)}) // entries may move
      values[each] = {name};
  }
  std::string i = fresh("i");
  values[loop.getInductionVar()] = {i};
  if (loop->hasAttr(tile::TileDialect::kUnrollAttr))
    line("TESSERA_UNROLL");
  if (auto by = loop->getAttrOfType<IntegerAttr>(gpu::kUnrollByAttr))
    line("TESSERA_UNROLL_BY(" + llvm::Twine(by.getInt()) + ")");
  line("for (int64_t " + i + " = " + scalar(loop.getLowerBound()).text + "; " +
       i + " < " + within(scalar(loop.getUpperBound()), Expression::sum) +
       "; " + i + " += " + scalar(loop.getStep()).text + ") {");
  ++depth;
  if (llvm::Error error = printBlock(*loop.getBody()))
    return error;
  if (llvm::Error error = assign(loop.getBody()->getTerminator(), carried))
    return error;
  --depth;
  line("}");
  return llvm::Error::success();
}

llvm::Error KernelPrinter::printIf(scf::IfOp branch) {
  SmallVector<std::string> results;
  for (Value result : branch.getResults()) {
    results.push_back(fresh("chosen"));
    values[result] = {results.back()};
    line(typeOf(result) + " " + results.back() + ";");
  }
  line("if (" + scalar(branch.getCondition()).text + ") {");
  for (Region *region : {&branch.getThenRegion(), &branch.getElseRegion()}) {
    if (region->empty())
      continue;
    if (region == &branch.getElseRegion())
      line("} else {");
    ++depth;
    if (llvm::Error error = printBlock(region->front()))
      return error;
    if (llvm::Error error = assign(region->front().getTerminator(), results))
      return error;
    --depth;
  }
  line("}");
  return llvm::Error::success();
}

} // namespace tessera::cuda
