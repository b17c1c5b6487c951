// What fits together in the ops of numbers with scales.
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/GraphVerify.h"
#include "dialects/graph/StoredLayout.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Mxfp4.h"
#include "runtime/support/NormalFloat.h"
#include <limits>
#include <numeric>

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::graph::detail;

#define GET_OP_CLASSES
#include "dialects/graph/GraphQuantOps.cpp.inc"

RankedTensorType
tessera::graph::quantizedValuesType(MLIRContext *context,
                                    const QuantizedLayout &layout) {
  if (layout.bits == 16)
    return RankedTensorType::get(
        {layout.micropanels(), layout.words() * layout.perWord(), kMicropanel},
        BFloat16Type::get(context));
  return RankedTensorType::get(
      {layout.micropanels(), layout.words(), kMicropanel},
      IntegerType::get(context, 32));
}

RankedTensorType
tessera::graph::quantizedScalesType(MLIRContext *context,
                                    const QuantizedLayout &layout) {
  Type element = layout.scaleWords() ? Type(IntegerType::get(context, 32))
                                     : Type(Float16Type::get(context));
  return RankedTensorType::get(
      {layout.micropanels(), layout.scaleRows(), kMicropanel}, element);
}

double tessera::graph::quantizedAt(const QuantizedLayout &layout, uint32_t word,
                                   int64_t k) {
  int64_t from = k % layout.perWord() * layout.bits;
  if (layout.nf4())
    return kNormalFloats[word >> from & 15];
  if (layout.mxfp4())
    return kMxfp4Numbers[word >> from & 15];
  if (layout.floats)
    return e4m3ToFloat(static_cast<uint8_t>(word >> from));
  if (layout.bits == 8)
    return static_cast<int8_t>(word >> from);
  return static_cast<double>(word >> from & 15) - double(layout.offset());
}

// Groups of 64 weights of a row, rows in whole micropanels.
static bool fitsNormalFloats(const QuantizedLayout &layout) {
  return layout.nf4() && layout.group == QuantizedLayout::kNf4Group &&
         !layout.zeros && layout.columns % layout.group == 0 &&
         layout.rows % kMicropanel == 0;
}

// Whole groups of 32 of a row.
static bool fitsMxfp4(const QuantizedLayout &layout) {
  return layout.mxfp4() && !layout.zeros && layout.columns % layout.group == 0;
}

DictionaryAttr QuantizedOrigin::write(MLIRContext *context) const {
  Builder b(context);
  NamedAttrList fields;
  fields.set("source", b.getStringAttr(source));
  fields.set("part", b.getStringAttr(isScales ? "scales" : "values"));
  fields.set("bits", b.getI64IntegerAttr(layout.bits));
  fields.set("group", b.getI64IntegerAttr(layout.group));
  SmallVector<int64_t> shape{layout.rows, layout.columns};
  if (stack)
    shape = {stack, layout.rows / stack, layout.columns};
  fields.set("shape", b.getDenseI64ArrayAttr(shape));
  if (layout.zeros)
    fields.set("zeros", b.getUnitAttr());
  if (layout.floats)
    fields.set("floats", b.getUnitAttr());
  if (layout.superBlocks)
    fields.set("super_blocks", b.getUnitAttr());
  if (transposed)
    fields.set("transposed", b.getUnitAttr());
  return fields.getDictionary(context);
}

DictionaryAttr tessera::graph::writeStored(MLIRContext *context,
                                           const QuantizedLayout &layout) {
  Builder b(context);
  NamedAttrList fields;
  fields.set("bits", b.getI64IntegerAttr(layout.bits));
  fields.set("group", b.getI64IntegerAttr(layout.group));
  if (layout.floats)
    fields.set("floats", b.getUnitAttr());
  if (layout.superBlocks)
    fields.set("super_blocks", b.getUnitAttr());
  return fields.getDictionary(context);
}

std::optional<QuantizedLayout> tessera::graph::readStored(Attribute attribute) {
  auto fields = dyn_cast_or_null<DictionaryAttr>(attribute);
  auto bits = fields ? fields.getAs<IntegerAttr>("bits") : IntegerAttr(),
       group = fields ? fields.getAs<IntegerAttr>("group") : IntegerAttr();
  if (!bits || !group)
    return std::nullopt;
  QuantizedLayout layout{.bits = bits.getInt(),
                         .group = group.getInt(),
                         .floats = fields.contains("floats"),
                         .superBlocks = fields.contains("super_blocks")};
  const bool fits = layout.superBlocks ? layout.fitsSuperBlocks()
                    : layout.floats    ? layout.mxfp4()
                                    : (layout.bits == 4 || layout.bits == 8) &&
                                          layout.group >= kQuantBlock &&
                                          layout.group % kQuantBlock == 0;
  const size_t flags = layout.floats + layout.superBlocks;
  return fits && fields.size() == 2 + flags ? std::optional(layout)
                                            : std::nullopt;
}

std::optional<QuantizedOrigin> QuantizedOrigin::read(Attribute attribute) {
  auto fields = dyn_cast_or_null<DictionaryAttr>(attribute);
  if (!fields)
    return std::nullopt;
  auto source = fields.getAs<StringAttr>("source"),
       part = fields.getAs<StringAttr>("part");
  auto bits = fields.getAs<IntegerAttr>("bits"),
       group = fields.getAs<IntegerAttr>("group");
  auto shape = fields.getAs<DenseI64ArrayAttr>("shape");
  if (!source || source.empty() || !part || !bits || !group || !shape ||
      (shape.size() != 2 && shape.size() != 3) ||
      llvm::any_of(shape.asArrayRef(), [](int64_t size) { return size < 1; }))
    return std::nullopt;
  int64_t stack = shape.size() == 3 ? shape[0] : 0;
  ArrayRef<int64_t> matrix = shape.asArrayRef().take_back(2);
  int64_t rows;
  if (llvm::MulOverflow(matrix[0], std::max<int64_t>(stack, 1), rows))
    return std::nullopt;
  QuantizedOrigin origin{source.str(),
                         part.getValue() == "scales",
                         {rows, matrix[1], bits.getInt(), group.getInt(),
                          fields.contains("zeros"), fields.contains("floats"),
                          fields.contains("super_blocks")},
                         fields.contains("transposed"),
                         stack};
  bool knows = origin.isScales || part.getValue() == "values";
  bool fits = (origin.layout.bits == 4 || origin.layout.bits == 8 ||
               (origin.layout.bits == 16 && !origin.isScales &&
                !origin.layout.zeros)) &&
              origin.layout.group >= kQuantBlock &&
              origin.layout.group % kQuantBlock == 0;
  fits &= !origin.layout.floats ||
          (origin.layout.bits == 8 && !origin.layout.zeros) ||
          (stack == 0 && fitsNormalFloats(origin.layout)) ||
          fitsMxfp4(origin.layout);
  if (origin.layout.superBlocks)
    fits = origin.layout.fitsSuperBlocks();
  fits &= stack == 0 || (matrix[0] % kMicropanel == 0 &&
                         (!origin.transposed || origin.layout.mxfp4()));
  return knows && fits ? std::optional(std::move(origin)) : std::nullopt;
}

QuantizedLayout DequantizeOp::getLayout() {
  ArrayRef<int64_t> shape = tensorType(getResult()).getShape();
  ArrayRef<int64_t> matrix = shape.take_back(2);
  int64_t stack = shape.size() == 3 ? shape[0] : 1;
  return {stack * matrix[getTransposed()],
          matrix[!getTransposed()],
          static_cast<int64_t>(getBits()),
          static_cast<int64_t>(getGroup()),
          getZeros(),
          getFloats(),
          getSuperBlocks()};
}

static LogicalResult verifySuperBlocks(DequantizeOp op) {
  if (op.getBits() < 4 || op.getBits() > 6)
    return op.emitOpError("has super-blocks of ")
           << op.getBits() << " bits, expected 4, 5 or 6";
  if (op.getZeros() || op.getFloats())
    return op.emitOpError("has super-blocks with ")
           << (op.getZeros() ? "zero points" : "floats")
           << ", expected neither; their own minima take that place";
  constexpr int64_t columns = QuantizedLayout::kSuperBlock;
  if (op.getGroup() != columns)
    return op.emitOpError("has super-blocks of ")
           << op.getGroup() << " columns, expected a group of " << columns;
  if (QuantizedLayout layout = op.getLayout(); layout.columns % columns)
    return op.emitOpError("has super-blocks in rows of ")
           << layout.columns << " columns, expected a multiple of " << columns;
  return success();
}

LogicalResult DequantizeOp::verify() {
  ArrayRef<int64_t> shape = tensorType(getResult()).getShape();
  if (shape.size() != 2 && shape.size() != 3)
    return emitOpError("has a result of rank ")
           << shape.size() << ", expected a matrix or a stack of them";
  if (shape.size() == 3 && getTransposed() && !getLayout().mxfp4())
    return emitOpError("has a stack of matrices that are transposed");
  if (shape.size() == 3 && shape[1 + getTransposed()] % kMicropanel)
    return emitOpError("has a stack of matrices of ")
           << shape[1 + getTransposed()] << " rows, expected a multiple of "
           << kMicropanel;
  if (getSuperBlocks()) {
    if (failed(verifySuperBlocks(*this)))
      return failure();
  } else if (getBits() != 4 && getBits() != 8 && getBits() != 16) {
    return emitOpError("has bits ") << getBits() << ", expected 4, 8 or 16";
  }
  if (getFloats() && getBits() == 16)
    return emitOpError("has floats of 16 bits, expected 4 or 8");
  if (getFloats() && getZeros())
    return emitOpError("has zero points, which floats do not support");
  if (getGroup() < 1 || getGroup() % kQuantBlock)
    return emitOpError("has groups of ")
           << getGroup() << ", expected a multiple of " << kQuantBlock;
  QuantizedLayout layout = getLayout();
  if (layout.nf4() && (shape.size() == 3 || !fitsNormalFloats(layout)))
    return emitOpError("has floats of 4 bits in groups of ")
           << getGroup() << " for " << layout.rows << " × " << layout.columns
           << " weights, expected groups of 64 in a matrix with a multiple of "
              "16 rows and of 64 columns";
  if (layout.mxfp4() && !fitsMxfp4(layout))
    return emitOpError("has floats of 4 bits in groups of 32 for rows of ")
           << layout.columns << " weights, expected a multiple of 32";
  RankedTensorType values = quantizedValuesType(getContext(), layout);
  if (failed(expectShape(*this, "values", tensorType(getValues()),
                         values.getShape())))
    return failure();
  if (tensorType(getValues()).getElementType() != values.getElementType())
    return emitOpError("has values of ")
           << tensorType(getValues()).getElementType() << ", expected "
           << values.getElementType();
  if (layout.hasScales() != bool(getScales()))
    return emitOpError(layout.hasScales()
                           ? "lacks scales"
                           : "has scales, which bf16 does not support");
  if (!layout.hasScales() && layout.zeros)
    return emitOpError("has zero points, which bf16 does not support");
  if (!layout.hasScales())
    return success();
  RankedTensorType scales = quantizedScalesType(getContext(), layout);
  if (tensorType(getScales()).getElementType() != scales.getElementType())
    return emitOpError("has scales of ")
           << tensorType(getScales()).getElementType() << ", expected "
           << scales.getElementType();
  return expectShape(*this, "scales", tensorType(getScales()),
                     scales.getShape());
}

// Part of the contraction that reads it: no useful work of its own, and of its
// result nothing goes through memory.
int64_t DequantizeOp::getFlops() { return 0; }
int64_t DequantizeOp::getBytes() { return countBytes(getOperands()); }

//===--- rows -----------------------------------------------------------===//

static LogicalResult expectRows(Operation *op, Value rows) {
  if (tensorType(rows).getRank() == 0)
    return op->emitOpError("expects rows, got a scalar");
  return success();
}

LogicalResult QuantizeRowsOp::verify() { return expectRows(*this, getInput()); }

LogicalResult DequantizeRowsOp::verify() {
  if (failed(expectRows(*this, getValues())))
    return failure();
  return expectShape(*this, "scales", tensorType(getScales()),
                     rowScalesType(getValues()).getShape());
}

SmallVector<Value> QuantizeRowsOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Type f32 = builder.getF32Type();
  Value x = e.convert(getInput(), f32);
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value most = e.maxLast(e.unary<AbsOp>(x));
  // Who reads the scale sees this number, whatever type it is kept in.
  Value scale = e.convert(e.mul(most, 1.0 / 127), builder.getBF16Type());
  scale = e.convert(scale, f32);
  Value divisor =
      e.max(scale, e.splatLike(std::numeric_limits<float>::min(), scale));
  Value inverse = e.div(e.splatLike(1.0, divisor), divisor);
  Value q = e.mul(x, e.broadcastFirst(inverse, shape));
  Value isNegative = e.compare(q, ComparePredicate::lt, e.splatLike(0, q));
  q = e.add(q, e.select(isNegative, e.splatLike(-0.5, q), e.splatLike(0.5, q)));
  scale = e.convert(scale, tensorType(getScales()).getElementType());
  return {e.convert(q, builder.getI8Type()),
          e.reshape(scale, shapeOf(getScales()))};
}

// Part of the attention that reads it, as above.
int64_t DequantizeRowsOp::getFlops() { return 0; }
int64_t DequantizeRowsOp::getBytes() { return countBytes(getOperands()); }

//===--- sharding rules -------------------------------------------------===//

// Packed layouts (micropanels, words) are not shardable.
// Rows of a shard are whole micropanels. A row of nf4 begins at some absmax of
// the 256 that are quantized together, and kernels derive which from its number
// in the shard.
static int64_t shardableRows(const QuantizedLayout &layout) {
  if (!layout.nf4())
    return kMicropanel;
  constexpr int64_t together = QuantizedLayout::kNf4Absmax;
  return std::lcm(kMicropanel, together / std::gcd(layout.groups(), together));
}

// Columns are shardable in whole groups. Rows or columns that do not consist of
// whole ones are not shardable, nor are columns of nf4 and mxfp4, whose scales
// have parts that belong to many groups.
OpRule DequantizeOp::getShardingRule() {
  QuantizedLayout layout = getLayout();
  ArrayRef<int64_t> shape = tensorType(getResult()).getShape();
  const bool isStack = shape.size() == 3;
  const int64_t rows = layout.rows / (isStack ? shape[0] : 1),
                wordsOfRow = tensorType(getValues()).getDimSize(1);
  OpRule rule;
  auto loop = [&](int64_t size, LoopKind kind) {
    return size == 1 ? OpRule::Dim() : OpRule::Dim{rule.loopDim(size, kind)};
  };
  auto shardable = [&](int64_t size) { return loop(size, LoopKind::parallel); };
  auto whole = [&](int64_t size) { return loop(size, LoopKind::whole); };
  auto product = [](OpRule::Dim slow, const OpRule::Dim &fast) {
    slow.append(fast);
    return slow;
  };
  const OpRule::Dim stack = shardable(isStack ? shape[0] : 1),
                    lanes = whole(kMicropanel);
  OpRule::Dim outRows = whole(rows), micropanels = whole(layout.micropanels());
  if (const int64_t unit = shardableRows(layout); rows % unit == 0) {
    OpRule::Dim own =
        product(shardable(rows / unit), whole(unit / kMicropanel));
    outRows = product(own, lanes);
    micropanels = product(stack, own);
  }
  OpRule::Dim outColumns = whole(layout.columns), words = whole(wordsOfRow),
              scales = whole(layout.scaleRows());
  if (!layout.nf4() && !layout.mxfp4() && layout.columns % layout.group == 0) {
    OpRule::Dim groups = shardable(layout.groups());
    outColumns = product(groups, whole(layout.group));
    words = product(groups, whole(wordsOfRow / layout.groups()));
    scales = product(groups, whole(layout.scalesAt(1)));
  }
  rule.operands = {{micropanels, words, lanes}};
  if (getScales())
    rule.operands.push_back({micropanels, scales, lanes});
  OpRule::Dims matrix{outRows, outColumns};
  if (getTransposed())
    std::swap(matrix[0], matrix[1]);
  if (isStack)
    matrix.insert(matrix.begin(), stack);
  rule.results = {matrix};
  return rule;
}

// [..., n] and the scales [..., 1] of its rows, which are whole.
static std::pair<OpRule::Dims, OpRule::Dims> rowsAndScales(OpRule &rule,
                                                           Value rows) {
  OpRule::Dims dims = rule.loopsOf(rows), scales = dims;
  rule.loops.back().kind = LoopKind::whole;
  scales.back().clear();
  return {dims, scales};
}

OpRule QuantizeRowsOp::getShardingRule() {
  OpRule rule;
  auto [rows, scales] = rowsAndScales(rule, getInput());
  rule.operands = {rows}, rule.results = {rows, scales};
  return rule;
}

OpRule DequantizeRowsOp::getShardingRule() {
  OpRule rule;
  auto [rows, scales] = rowsAndScales(rule, getResult());
  rule.operands = {rows, scales}, rule.results = {rows};
  return rule;
}
