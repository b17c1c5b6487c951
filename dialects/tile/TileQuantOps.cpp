#include "dialects/tile/TileQuantOps.h"
#include "runtime/support/QuantizedLayout.h"

using namespace mlir;
using namespace tessera::tile;

#define GET_OP_CLASSES
#include "dialects/tile/TileQuantOps.cpp.inc"

LogicalResult MmaQuantizedOp::verify() {
  auto shapeOf = [](Value value) {
    return cast<VectorType>(value.getType()).getShape();
  };
  ArrayRef<int64_t> lhs = shapeOf(getLhs()), words = shapeOf(getWords()),
                    scales = shapeOf(getScales()),
                    sums = shapeOf(getAccumulator());
  // Along a row of the matrix.
  int64_t bits = getBits(), group = getGroup(),
          along = getRows() ? sums[1] : lhs[1],
          across = getRows() ? lhs[1] : sums[1];
  if (bits != 4 && bits != 8)
    return emitOpError("`bits` must be 4 or 8, got ") << bits;
  if (getFloats() && (bits != 8 || getZeros()))
    return emitOpError("`floats` must have 8 bits and no zero points");
  int64_t least = getRows() ? kMicropanel : kQuantBlock;
  if (group < kQuantBlock || group % kQuantBlock || along % least)
    return emitOpError(getRows()
                           ? "columns must be multiples of 16, and groups "
                             "of 32, got "
                           : "terms and groups must be multiples of 32, "
                             "got ")
           << along << " and " << group;
  if (along % group && group % along)
    return emitOpError(getRows() ? "columns" : "terms")
           << " must be whole groups or within one, got " << along
           << " of groups of " << group;
  int64_t splits = getSplits();
  if (getRows() && splits != 1)
    return emitOpError("`rows` has no `splits`, got ") << splits;
  if (splits < 1 || (!getRows() && along % (splits * kQuantBlock)))
    return emitOpError("`splits` must be parts of whole ")
           << kQuantBlock << " terms, got " << splits << " of " << along;
  int64_t micropanels = across / kMicropanel,
          ofScales = std::max<int64_t>(along / group, 1) * kMicropanel *
                     (getZeros() ? 2 : 1);
  if (sums[0] != lhs[0] * splits || across % kMicropanel ||
      words !=
          ArrayRef<int64_t>{micropanels, along * bits / 32 * kMicropanel} ||
      scales != ArrayRef<int64_t>{micropanels, ofScales})
    return emitOpError("tile shapes do not fit: ")
           << getLhs().getType() << " × " << getWords().getType() << " with "
           << getScales().getType() << " into " << getAccumulator().getType();
  return success();
}

LogicalResult LookupOp::verify() {
  if (getTable().size() != 16)
    return emitOpError("`table` must have 16 numbers, got ")
           << getTable().size();
  if (cast<VectorType>(getIndex().getType()).getShape() !=
      cast<VectorType>(getResult().getType()).getShape())
    return emitOpError("shapes do not fit: ")
           << getIndex().getType() << " and " << getResult().getType();
  return success();
}
