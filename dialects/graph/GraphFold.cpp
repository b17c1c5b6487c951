// Folders of constants, conversions and views, and the canonical forms of
// sums and products with a neutral constant.
#include "dialects/graph/GraphOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace tessera::graph;

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

//===--- conversion -----------------------------------------------------===//

static APFloat toFloat(const APFloat &value, FloatType type) {
  APFloat result = value;
  bool inexact;
  result.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                 &inexact);
  return result;
}

static APFloat toFloat(const APInt &value, bool isSigned, FloatType type) {
  APFloat result(type.getFloatSemantics());
  result.convertFromAPInt(value, isSigned, APFloat::rmNearestTiesToEven);
  return result;
}

// Booleans and ui8 extend with zeros.
static bool isSigned(Type type) {
  return !type.isInteger(1) && !type.isUnsignedInteger();
}

static APInt toInt(const APFloat &value, IntegerType type) {
  APSInt result(type.getWidth(), !isSigned(type));
  bool exact;
  value.convertToInteger(result, APFloat::rmTowardZero, &exact);
  return result;
}

static Attribute convertElements(DenseElementsAttr elements, Type to) {
  Type from = elements.getElementType();
  auto toFloatType = dyn_cast<FloatType>(to);
  if (isa<FloatType>(from)) {
    if (toFloatType)
      return cast<DenseFPElementsAttr>(elements).mapValues(
          to, [&](const APFloat &value) {
            return toFloat(value, toFloatType).bitcastToAPInt();
          });
    return cast<DenseFPElementsAttr>(elements).mapValues(
        to, [&](const APFloat &value) {
          return toInt(value, cast<IntegerType>(to));
        });
  }
  bool extendSign = isSigned(from);
  return cast<DenseIntElementsAttr>(elements).mapValues(
      to, [&](const APInt &value) {
        if (toFloatType)
          return toFloat(value, extendSign, toFloatType).bitcastToAPInt();
        unsigned width = to.getIntOrFloatBitWidth();
        return extendSign ? value.sextOrTrunc(width) : value.zextOrTrunc(width);
      });
}

// Whether every value of `narrow` is one of `wide`.
static bool isLossless(Type narrow, Type wide) {
  if (isa<FloatType>(narrow) && isa<FloatType>(wide))
    return cast<FloatType>(wide).getFPMantissaWidth() >=
               cast<FloatType>(narrow).getFPMantissaWidth() &&
           wide.getIntOrFloatBitWidth() > narrow.getIntOrFloatBitWidth();
  return isa<IntegerType>(narrow) && isa<IntegerType>(wide) &&
         isSigned(narrow) == isSigned(wide) &&
         wide.getIntOrFloatBitWidth() > narrow.getIntOrFloatBitWidth();
}

OpFoldResult ConvertOp::fold(FoldAdaptor adaptor) {
  Type to = tensorType(getResult()).getElementType();
  if (getInput().getType() == getResult().getType())
    return getInput();
  if (auto elements =
          dyn_cast_if_present<DenseElementsAttr>(adaptor.getInput()))
    return convertElements(elements, to);
  // A round trip through a type of more bits.
  if (auto inner = getInput().getDefiningOp<ConvertOp>())
    if (inner.getInput().getType() == getResult().getType() &&
        isLossless(to, tensorType(getInput()).getElementType()))
      return inner.getInput();
  return {};
}

//===--- views ----------------------------------------------------------===//

// A splat under another shape; nothing for what is not a splat.
static OpFoldResult foldSplat(Attribute input, Value result) {
  if (auto splat = dyn_cast_if_present<SplatElementsAttr>(input))
    return splat.resizeSplat(tensorType(result));
  return {};
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  if (auto elements =
          dyn_cast_if_present<DenseElementsAttr>(adaptor.getInput()))
    return elements.reshape(tensorType(getResult()));
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  ArrayRef<int64_t> outer = getPermutation();
  if (llvm::equal(outer, llvm::seq<int64_t>(0, outer.size())))
    return getInput();
  if (OpFoldResult splat = foldSplat(adaptor.getInput(), getResult()))
    return splat;
  if (auto inner = getInput().getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> both;
    for (int64_t dim : outer)
      both.push_back(inner.getPermutation()[dim]);
    setPermutation(both);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  if (OpFoldResult splat = foldSplat(adaptor.getInput(), getResult()))
    return splat;
  if (auto inner = getInput().getDefiningOp<BroadcastOp>()) {
    SmallVector<int64_t> both;
    for (int64_t dim : inner.getDims())
      both.push_back(getDims()[dim]);
    setDims(both);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}

// The input of a concatenation that has all of the slice, and where it begins;
// null if the slice has parts of several.
static std::pair<Value, int64_t> inputOf(ConcatOp concat, int64_t start,
                                         int64_t size) {
  int64_t begin = 0;
  for (Value input : concat.getInputs()) {
    int64_t end = begin + tensorType(input).getDimSize(concat.getDim());
    if (start >= begin && start + size <= end)
      return {input, begin};
    begin = end;
  }
  return {};
}

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  if (OpFoldResult splat = foldSplat(adaptor.getInput(), getResult()))
    return splat;
  if (auto inner = getInput().getDefiningOp<SliceOp>()) {
    SmallVector<int64_t> both;
    for (auto [a, b] : llvm::zip_equal(getStart(), inner.getStart()))
      both.push_back(a + b);
    setStart(both);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  if (auto concat = getInput().getDefiningOp<ConcatOp>()) {
    SmallVector<int64_t> start(getStart());
    int64_t &along = start[concat.getDim()];
    auto [input, begin] = inputOf(
        concat, along, tensorType(getResult()).getDimSize(concat.getDim()));
    if (!input)
      return {};
    along -= begin;
    setStart(start);
    getInputMutable().assign(input);
    return getResult();
  }
  return {};
}

//===--- neutral constants ----------------------------------------------===//

// x + 0 and x × 1 are x. (x × 0 is not 0 for an infinite x, and stays; x + 0.0
// is not x for x = -0.0.)
template <typename Op, typename IntMatcher, typename FloatMatcher>
static LogicalResult dropNeutral(Op op, PatternRewriter &rewriter,
                                 IntMatcher integer, FloatMatcher real) {
  for (auto [side, other] : {std::pair(op.getRhs(), op.getLhs()),
                             std::pair(op.getLhs(), op.getRhs())})
    if (matchPattern(side, integer) || matchPattern(side, real)) {
      rewriter.replaceOp(op, other);
      return success();
    }
  return failure();
}

// The padded terms of a tree of sums, in the order of the text; false where a
// term is anything else. Inner sums must have no other reader.
static bool collectPads(Value term, bool isRoot, SmallVectorImpl<PadOp> &pads) {
  if (auto pad = term.getDefiningOp<PadOp>()) {
    pads.push_back(pad);
    return true;
  }
  auto sum = term.getDefiningOp<AddOp>();
  // Both sides first: a long sum of other things is not walked from each of its
  // ops.
  auto mayBe = [](Value side) {
    return isa_and_nonnull<PadOp, AddOp>(side.getDefiningOp());
  };
  return sum && (isRoot || sum->hasOneUse()) && mayBe(sum.getLhs()) &&
         mayBe(sum.getRhs()) && collectPads(sum.getLhs(), false, pads) &&
         collectPads(sum.getRhs(), false, pads);
}

// The one dimension along which the pad puts zeros; -1 where there are several.
static int64_t paddedDim(PadOp pad) {
  ArrayRef<int64_t> from = tensorType(pad.getInput()).getShape(),
                    to = tensorType(pad.getResult()).getShape();
  int64_t found = -1;
  for (int64_t dim = 0, rank = to.size(); dim < rank; ++dim) {
    if (from[dim] == to[dim])
      continue;
    if (found >= 0)
      return -1;
    found = dim;
  }
  return found;
}

// pad(a) + pad(b) + …, side by side along one dimension and without a gap, is
// concat(a, b, …): what the gradients of the slices of a fused QKV add up to.
static LogicalResult joinPads(AddOp op, PatternRewriter &rewriter) {
  SmallVector<PadOp> pads;
  if (!collectPads(op, true, pads))
    return failure();
  int64_t dim = paddedDim(pads.front());
  if (dim < 0)
    return failure();
  llvm::sort(pads, [&](PadOp a, PadOp b) {
    return a.getLow()[dim] < b.getLow()[dim];
  });
  int64_t end = 0;
  SmallVector<Value> parts;
  for (PadOp pad : pads) {
    if (paddedDim(pad) != dim || pad.getLow()[dim] != end)
      return failure();
    end += tensorType(pad.getInput()).getDimSize(dim);
    parts.push_back(pad.getInput());
  }
  if (end != tensorType(op).getDimSize(dim))
    return failure();
  rewriter.replaceOpWithNewOp<ConcatOp>(op, parts, dim);
  return success();
}

void AddOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                        MLIRContext *) {
  patterns.add(+[](AddOp op, PatternRewriter &rewriter) {
    return dropNeutral(op, rewriter, m_Zero(), m_NegZeroFloat());
  });
  patterns.add(joinPads);
}

//===--- rows -----------------------------------------------------------===//

// Rows of a table that is converted to a wider type: the rows are converted.
void EmbeddingOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                              MLIRContext *) {
  patterns.add(+[](EmbeddingOp op, PatternRewriter &rewriter) {
    auto convert = op.getTable().getDefiningOp<ConvertOp>();
    RankedTensorType to = tensorType(op);
    if (!convert || tensorType(convert).getElementType() != to.getElementType())
      return failure();
    Type from = tensorType(convert.getInput()).getElementType();
    if (!isLossless(from, to.getElementType()))
      return failure();
    Value rows = rewriter.create<EmbeddingOp>(op.getLoc(), convert.getInput(),
                                              op.getIds());
    rewriter.replaceOpWithNewOp<ConvertOp>(op, to, rows);
    return success();
  });
}

void MulOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                        MLIRContext *) {
  patterns.add(+[](MulOp op, PatternRewriter &rewriter) {
    return dropNeutral(op, rewriter, m_One(), m_OneFloat());
  });
}
