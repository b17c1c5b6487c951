#include "compiler/target/cpu/Lowering.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace tessera::cpu {

static SmallVector<int64_t> shapeOf(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? SmallVector<int64_t>(vector.getShape())
                : SmallVector<int64_t>();
}

KernelLowering::KernelLowering(const TileTarget &target, OpBuilder &builder,
                               Block &entry)
    : BoxAccess(builder, target.lanes, entry), target(target),
      math(p, target.lanes == 16), doubleMath(p) {}

llvm::Error KernelLowering::error(Operation *op, const llvm::Twine &what) {
  return llvm::createStringError(op->getName().getStringRef() + ": " + what);
}

SmallVector<Value> KernelLowering::scalarsOf(ValueRange values) {
  return llvm::map_to_vector(values, [&](Value v) { return scalarOf(v); });
}

//===--- functions --------------------------------------------------------===//

// fn(buffers, sizes, begin, end, scratch): for each block, call `block`. Matrix
// registers stay configured from the first block to the last.
static void emitEntry(OpBuilder &b, Location loc, func::FuncOp entry,
                      func::FuncOp block,
                      const std::optional<MatrixConfiguration> &matrices) {
  Block *body = entry.addEntryBlock();
  b.setInsertionPointToStart(body);
  if (matrices) {
    Value memory = b.create<LLVM::GEPOp>(
        loc, body->getArgument(4).getType(), b.getI8Type(),
        body->getArgument(4), ArrayRef<LLVM::GEPArg>{int32_t(matrices->place)});
    configureMatrixRegisters(b, loc, memory, matrices->shape);
  }
  Type index = b.getIndexType();
  Value begin = b.create<arith::IndexCastOp>(loc, index, body->getArgument(2));
  Value end = b.create<arith::IndexCastOp>(loc, index, body->getArgument(3));
  Value one = b.create<arith::ConstantIndexOp>(loc, 1);
  auto loop = b.create<scf::ForOp>(loc, begin, end, one);
  b.setInsertionPointToStart(loop.getBody());
  Value number =
      b.create<arith::IndexCastOp>(loc, b.getI64Type(), loop.getInductionVar());
  b.create<func::CallOp>(loc, block,
                         ValueRange{body->getArgument(0), body->getArgument(1),
                                    number, body->getArgument(4)});
  b.setInsertionPointToEnd(body);
  if (matrices)
    releaseMatrixRegisters(b, loc);
  b.create<func::ReturnOp>(loc);
}

llvm::Error lowerKernel(tile::KernelOp kernel, const TileTarget &target,
                        ModuleOp module) {
  Location loc = kernel.getLoc();
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();
  auto block = b.create<func::FuncOp>(
      loc, (kernel.getSymName() + ".block").str(),
      b.getFunctionType({pointer, pointer, i64, pointer}, {}));
  block.setPrivate();
  // Only scratch: a read buffer may share memory with a written one (`reuse`).
  block.setArgAttr(3, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  block.setArgAttr(3, LLVM::LLVMDialect::getAlignAttrName(),
                   b.getI64IntegerAttr(64));
  auto entry = b.create<func::FuncOp>(
      loc, kernel.getSymName(),
      b.getFunctionType({pointer, pointer, i64, i64, pointer}, {}));

  Block *body = block.addEntryBlock();
  b.setInsertionPointToStart(body);
  SmallVector<Value> arguments{b.create<arith::IndexCastOp>(
      loc, b.getIndexType(), body->getArgument(2))};
  auto entryOf = [&](Value array, int64_t i, Type type) -> Value {
    Value slot = b.create<LLVM::GEPOp>(loc, pointer, type, array,
                                       ArrayRef<LLVM::GEPArg>{int32_t(i)});
    return b.create<LLVM::LoadOp>(loc, type, slot);
  };
  for (auto [i, size] : llvm::enumerate(kernel.getSizes()))
    arguments.push_back(b.create<arith::IndexCastOp>(
        loc, b.getIndexType(), entryOf(body->getArgument(1), i, i64)));
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers()))
    arguments.push_back(entryOf(body->getArgument(0), i, pointer));
  KernelLowering lowering(target, b, *body);
  if (llvm::Error error =
          lowering.lowerBody(kernel, arguments, body->getArgument(3)))
    return llvm::createStringError("kernel @" + kernel.getSymName() + ": " +
                                   llvm::toString(std::move(error)));
  b.create<func::ReturnOp>(loc);
  emitEntry(b, loc, entry, block, lowering.matrixConfiguration());
  entry->setAttr(kScratchAttr, b.getI64IntegerAttr(lowering.scratchBytes()));
  return llvm::Error::success();
}

llvm::Error KernelLowering::lowerBody(tile::KernelOp kernel,
                                      ValueRange arguments,
                                      Value scratchPointer) {
  scratch = scratchPointer;
  // A kernel without matrix registers is identical to that of a target without
  // them.
  auto holdsMatrices = [&] {
    return kernel
        ->walk([](tile::MmaStagedOp) { return WalkResult::interrupt(); })
        .wasInterrupted();
  };
  roundsAtOnce = target.bf16Dot || (target.matrixTiles && holdsMatrices());
  for (auto [argument, value] :
       llvm::zip(kernel.getBody().getArguments(), arguments)) {
    auto type = dyn_cast<MemRefType>(argument.getType());
    if (!type) {
      bind(argument, {{}, {value}, Form::vectors});
      continue;
    }
    llvm::Expected<Memory> memory = describe(kernel, type, value);
    if (!memory)
      return memory.takeError();
    memories[argument] = std::move(*memory);
  }
  return lowerBlock(kernel.getBody().front());
}

llvm::Error KernelLowering::lowerBlock(Block &block) {
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break; // lowered with the parent
    if (done.erase(&op))
      continue;
    setLocation(op.getLoc());
    if (llvm::Error error = lowerOp(&op))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error KernelLowering::lowerOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, llvm::Error>(op)
      .Case([&](scf::ForOp o) { return lowerFor(o); })
      .Case([&](scf::WhileOp o) { return lowerWhile(o); })
      .Case([&](scf::IfOp o) { return lowerIf(o); })
      .Case([&](tile::LoadOp o) { return lowerLoad(o); })
      .Case([&](tile::StoreOp o) { return lowerStore(o); })
      .Case([&](tile::AllocOp o) { return lowerAlloc(o); })
      .Case([&](tile::CopyOp o) { return lowerCopy(o); })
      .Case([&](tile::MmaOp o) { return lowerMma(o); })
      .Case([&](tile::MmaStagedOp o) { return lowerWithLoops(o); })
      .Case([&](tile::ReduceOp o) { return lowerReduce(o); })
      .Case([&](tile::BroadcastOp o) { return lowerBroadcast(o); })
      .Case([&](tile::IotaOp o) { return lowerIota(o); })
      .Case([&](tile::LookupOp o) { return lowerLookup(o); })
      .Case([&](tile::DotPairsOp o) { return lowerDotPairs(o); })
      .Case([&](tile::TransposeOp o) {
        bind(o.getResult(), p.transpose(tileOf(o.getInput())));
        return llvm::Error::success();
      })
      // One thread runs a block, and its copies are complete when they return.
      .Case<tile::CommitOp, tile::WaitOp, tile::BarrierOp>(
          [](auto) { return llvm::Error::success(); })
      .Case([&](arith::ConstantOp o) { return lowerConstant(o); })
      .Case<arith::ExtFOp, arith::TruncFOp, arith::BitcastOp>(
          [&](auto o) { return lowerConversion(o); })
      .Default([&](Operation *o) {
        if (OpTrait::hasElementwiseMappableTraits(o) ||
            isa<arith::IndexCastOp, arith::IndexCastUIOp>(o))
          return lowerElementwise(o);
        if (isa<vector::VectorDialect>(o->getDialect()))
          return lowerVector(o);
        return lowerMemory(o);
      });
}

//===--- control flow -----------------------------------------------------===//

SmallVector<Type> KernelLowering::expandTypes(TypeRange types) {
  SmallVector<Type> result;
  for (Type type : types) {
    SmallVector<int64_t> shape = shapeOf(type);
    result.append(p.pieceCount(shape),
                  p.pieceType(shape, getElementTypeOrSelf(type)));
  }
  return result;
}

llvm::Error KernelLowering::bindResults(ValueRange originals,
                                        ValueRange pieces) {
  for (Value original : originals) {
    Tile tile{shapeOf(original.getType()), {}, Form::vectors};
    int64_t count = p.pieceCount(tile.shape);
    llvm::append_range(tile.pieces, pieces.take_front(count));
    pieces = pieces.drop_front(count);
    bind(original, std::move(tile));
  }
  return llvm::Error::success();
}

void KernelLowering::yield(Operation *terminator) {
  SmallVector<Value> pieces;
  for (Value operand : terminator->getOperands())
    llvm::append_range(pieces, tileOf(operand).pieces);
  b.create<scf::YieldOp>(terminator->getLoc(), pieces);
}

llvm::Error KernelLowering::lowerFor(scf::ForOp loop) {
  for (Type type : loop.getResultTypes())
    if (isa<MemRefType>(type))
      return error(loop, "a memref cannot be loop-carried");
  SmallVector<Value> inits;
  for (Value init : loop.getInitArgs())
    llvm::append_range(inits, tileOf(init).pieces);
  Location where = loop.getLoc();
  auto lowered = b.create<scf::ForOp>(where, scalarOf(loop.getLowerBound()),
                                      scalarOf(loop.getUpperBound()),
                                      scalarOf(loop.getStep()), inits);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(lowered.getBody());
  bind(loop.getInductionVar(),
       {{}, {lowered.getInductionVar()}, Form::vectors});
  if (llvm::Error error =
          bindResults(loop.getRegionIterArgs(), lowered.getRegionIterArgs()))
    return error;
  if (llvm::Error error = lowerBlock(*loop.getBody()))
    return error;
  if (!inits.empty())
    yield(loop.getBody()->getTerminator());
  return bindResults(loop.getResults(), lowered.getResults());
}

// Both regions take what is carried.
llvm::Error KernelLowering::lowerWhile(scf::WhileOp loop) {
  auto piecesOf = [&](ValueRange values) {
    SmallVector<Value> pieces;
    for (Value value : values)
      llvm::append_range(pieces, tileOf(value).pieces);
    return pieces;
  };
  Location where = loop.getLoc();
  SmallVector<Value> inits = piecesOf(loop.getInits());
  SmallVector<Type> types = expandTypes(loop.getResultTypes());
  auto lowered = b.create<scf::WhileOp>(where, types, inits);
  OpBuilder::InsertionGuard guard(b);
  auto lowerRegion = [&](Region &from, Region &to,
                         TypeRange carried) -> llvm::Error {
    Block *block = b.createBlock(&to, to.end(), carried,
                                 SmallVector<Location>(carried.size(), where));
    if (llvm::Error error =
            bindResults(from.getArguments(), block->getArguments()))
      return error;
    return lowerBlock(from.front());
  };
  if (llvm::Error error = lowerRegion(loop.getBefore(), lowered.getBefore(),
                                      ValueRange(inits).getTypes()))
    return error;
  scf::ConditionOp condition = loop.getConditionOp();
  b.create<scf::ConditionOp>(where, scalarOf(condition.getCondition()),
                             piecesOf(condition.getArgs()));
  if (llvm::Error error =
          lowerRegion(loop.getAfter(), lowered.getAfter(), types))
    return error;
  yield(loop.getAfterBody()->getTerminator());
  return bindResults(loop.getResults(), lowered.getResults());
}

llvm::Error KernelLowering::lowerIf(scf::IfOp branch) {
  for (Type type : branch.getResultTypes())
    if (isa<MemRefType>(type))
      return error(branch, "a memref cannot be the result of a branch");
  bool hasElse = !branch.getElseRegion().empty();
  auto lowered =
      b.create<scf::IfOp>(branch.getLoc(), expandTypes(branch.getResultTypes()),
                          scalarOf(branch.getCondition()), hasElse);
  OpBuilder::InsertionGuard guard(b);
  auto lowerRegion = [&](Region &from, Region &to) -> llvm::Error {
    if (from.empty())
      return llvm::Error::success();
    b.setInsertionPointToStart(&to.front());
    if (llvm::Error error = lowerBlock(from.front()))
      return error;
    if (!branch.getResults().empty())
      yield(from.front().getTerminator());
    return llvm::Error::success();
  };
  if (llvm::Error error =
          lowerRegion(branch.getThenRegion(), lowered.getThenRegion()))
    return error;
  if (llvm::Error error =
          lowerRegion(branch.getElseRegion(), lowered.getElseRegion()))
    return error;
  return bindResults(branch.getResults(), lowered.getResults());
}

//===--- elementwise ------------------------------------------------------===//

// The stored form of an element: bf16 as its bits.
static TypedAttr storedAttr(OpBuilder &b, Attribute value) {
  auto real = dyn_cast<FloatAttr>(value);
  if (real && real.getType().isBF16())
    return b.getI16IntegerAttr(
        static_cast<int16_t>(real.getValue().bitcastToAPInt().getZExtValue()));
  return cast<TypedAttr>(value);
}

llvm::Error KernelLowering::lowerConstant(arith::ConstantOp op) {
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense) {
    bind(op, {{}, {p.constant(storedAttr(b, op.getValue()))}, Form::vectors});
    return llvm::Error::success();
  }
  Tile tile{shapeOf(op.getType()), {}, Form::vectors};
  Type element = dense.getElementType();
  Type piece = p.pieceType(tile.shape, element);
  if (dense.isSplat()) {
    TypedAttr value = storedAttr(b, dense.getSplatValue<Attribute>());
    if (auto vector = dyn_cast<VectorType>(piece))
      value = DenseElementsAttr::get(vector, Attribute(value));
    tile.pieces.assign(p.pieceCount(tile.shape), p.constant(value));
    bind(op, std::move(tile));
    return llvm::Error::success();
  }
  auto values = llvm::to_vector(dense.getValues<Attribute>());
  int64_t columns = tile.shape.back();
  auto vector = dyn_cast<VectorType>(piece);
  for (int64_t row = 0; row < dense.getNumElements(); row += columns)
    for (int64_t column = 0; column < columns; column += target.lanes) {
      SmallVector<Attribute> lanes;
      for (int64_t i = 0; i < target.lanes; ++i)
        lanes.push_back(
            storedAttr(b, values[row + std::min(column + i, columns - 1)]));
      tile.pieces.push_back(
          p.constant(vector ? TypedAttr(DenseElementsAttr::get(vector, lanes))
                            : cast<TypedAttr>(lanes.front())));
    }
  bind(op, std::move(tile));
  return llvm::Error::success();
}

llvm::Error KernelLowering::lowerElementwise(Operation *op) {
  if (isa<arith::RemFOp>(op))
    return error(op, "has no vector lowering on the CPU");
  if (op->getNumResults() != 1)
    return error(op, "must have one result to be lowered elementwise");
  Type type = op->getResult(0).getType();
  Tile result{shapeOf(type), {}, Form::vectors};
  Type piece = p.pieceType(result.shape, getElementTypeOrSelf(type));
  int64_t count = p.pieceCount(result.shape);
  for (int64_t i = 0; i < count; ++i) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      Tile &tile = tileOf(operand);
      // only select mixes a scalar with tiles
      operands.push_back(tile.pieces[tile.shape.empty() ? 0 : i]);
    }
    if (Value value = lowerMath(op, operands)) {
      result.pieces.push_back(value);
      continue;
    }
    if (isa<math::MathDialect>(op->getDialect()) &&
        !isa<math::FmaOp, math::SqrtOp, math::AbsFOp, math::AbsIOp,
             math::FloorOp, math::CeilOp, math::TruncOp, math::RoundEvenOp,
             math::CopySignOp>(op))
      return error(op, "is not a function that the CPU target expands "
                       "(see Polynomials.h)");
    Operation *copy = b.insert(op->cloneWithoutRegions());
    copy->setOperands(operands);
    copy->getResult(0).setType(piece);
    result.pieces.push_back(copy->getResult(0));
  }
  bind(op->getResult(0), std::move(result));
  return llvm::Error::success();
}

// The functions for which LLVM would call libm, one element at a time. Null for
// any other op.
static Value expandMath(Polynomials &math, Operation *op, ValueRange x) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](math::ExpOp) { return math.exp(x[0]); })
      .Case([&](math::Exp2Op) { return math.exp2(x[0]); })
      .Case([&](math::ExpM1Op) { return math.expm1(x[0]); })
      .Case([&](math::LogOp) { return math.log(x[0]); })
      .Case([&](math::Log2Op) { return math.log2(x[0]); })
      .Case([&](math::Log10Op) { return math.log10(x[0]); })
      .Case([&](math::Log1pOp) { return math.log1p(x[0]); })
      .Case([&](math::TanhOp) { return math.tanh(x[0]); })
      .Case([&](math::ErfOp) { return math.erf(x[0]); })
      .Case([&](math::SinOp) { return math.sin(x[0]); })
      .Case([&](math::CosOp) { return math.cos(x[0]); })
      .Case([&](math::RsqrtOp) { return math.rsqrt(x[0]); })
      .Case([&](math::PowFOp) { return math.pow(x[0], x[1]); })
      .Default([](Operation *) { return Value(); });
}

Value KernelLowering::lowerMath(Operation *op, ValueRange x) {
  if (!isa<math::MathDialect>(op->getDialect()))
    return {};
  Type element = getElementTypeOrSelf(op->getResult(0));
  if (element.isF64())
    return expandMath(doubleMath, op, x);
  return element.isF32() ? expandMath(math, op, x) : Value();
}

// extf, truncf and bitcast: bf16 pieces hold i16.
llvm::Error KernelLowering::lowerConversion(Operation *op) {
  Value input = op->getOperand(0);
  Type from = getElementTypeOrSelf(input),
       to = getElementTypeOrSelf(op->getResult(0));
  if (!from.isBF16() && !to.isBF16())
    return lowerElementwise(op);
  if (from.isF16() || to.isF16())
    return error(op, "converts between bf16 and f16; extend to f32 first");
  Tile result = tileOf(input);
  // Pairs stay packed: the products that use them unpack them.
  if (!isa<arith::BitcastOp>(op) && result.form != Form::pairs)
    for (Value &piece : result.pieces) {
      bool wide = from.isF64() || to.isF64();
      Type middle = p.pieceType(result.shape, b.getF32Type());
      Type last = p.pieceType(result.shape, to);
      if (from.isBF16()) {
        piece = p.extendBf16(piece);
        if (wide)
          piece = b.create<arith::ExtFOp>(loc, last, piece);
      } else {
        if (wide)
          piece = b.create<arith::TruncFOp>(loc, middle, piece);
        piece = p.truncateToBf16(piece, roundsAtOnce);
      }
    }
  bind(op->getResult(0), std::move(result));
  return llvm::Error::success();
}

} // namespace tessera::cpu
