// Verifiers of attributes and ops.
#include "dialects/dist/DistOps.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace tessera::dist;

#include "dialects/dist/DistInterfaces.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/dist/DistOps.cpp.inc"

//===--- attributes -------------------------------------------------------===//

LogicalResult
AxisAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 StringRef name, int64_t size) {
  if (name.empty())
    return emitError() << "an axis has a name";
  if (size < 1)
    return emitError() << "axis size must be at least 1, got: " << size;
  return success();
}

LogicalResult
LinkAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                 int64_t span, int64_t bandwidth, int64_t latency) {
  if (span < 0 || bandwidth < 1 || latency < 0)
    return emitError() << "a link has a positive bandwidth, and neither span "
                          "nor latency is negative";
  return success();
}

LogicalResult
ClusterAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                    StringRef, int64_t flops, int64_t memory, int64_t launch,
                    ArrayRef<LinkAttr> links) {
  if (flops < 1 || memory < 1 || launch < 0)
    return emitError() << "a device has positive flops and memory bandwidth, "
                          "and launch is not negative";
  if (links.empty() || links.back().getSpan() != 0)
    return emitError() << "the last tier of links must connect all devices "
                          "(span 0)";
  int64_t before = 0;
  for (LinkAttr link : links.drop_back()) {
    if (link.getSpan() <= before)
      return emitError() << "each tier of links must span more devices than "
                            "the one before";
    before = link.getSpan();
  }
  return success();
}

LogicalResult
AxisRefAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                    StringRef name, int64_t pre, int64_t size) {
  if (name.empty())
    return emitError() << "an axis has a name";
  if (pre < 1 || size < 0 || (size == 0 && pre != 1))
    return emitError() << "a sub-axis is (pre)size with both at least 1, got: ("
                       << pre << ")" << size;
  return success();
}

LogicalResult
FactorAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                   int64_t size, ArrayRef<AxisRefAttr>) {
  if (size < 0)
    return emitError() << "a factor's size must not be negative, got: " << size;
  return success();
}

LogicalResult
DimShardingAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                        ArrayRef<FactorAttr> factors) {
  bool whole = llvm::any_of(
      factors, [](FactorAttr factor) { return factor.getSize() == 0; });
  if (whole && factors.size() != 1)
    return emitError() << "a factor of the whole dimension must be the only "
                          "factor";
  return success();
}

LogicalResult
ShardingAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                     FlatSymbolRefAttr mesh, ArrayRef<DimShardingAttr> dims,
                     ReduceKind, ArrayRef<AxisRefAttr> partial,
                     ArrayRef<AxisRefAttr> own, int64_t room) {
  if (room < 0 || (room > 0 && dims.empty()))
    return emitError() << "expects room for rows of a tensor, got " << room;
  // Each axis is used once; disjoint sub-axes of one axis may be used once
  // each.
  llvm::StringMap<SmallVector<AxisRefAttr>> used;
  auto use = [&](AxisRefAttr axis) -> LogicalResult {
    auto &others = used[axis.getName()];
    for (AxisRefAttr other : others) {
      int64_t from = axis.getPre(), to = from * axis.getSize();
      bool apart =
          !axis.isWhole() && !other.isWhole() &&
          (to <= other.getPre() || other.getPre() * other.getSize() <= from);
      if (!apart)
        return emitError() << "axis \"" << axis.getName()
                           << "\" is used twice in one sharding";
    }
    others.push_back(axis);
    return success();
  };
  for (DimShardingAttr dim : dims)
    for (AxisRefAttr axis : dim.getAxes())
      if (failed(use(axis)))
        return failure();
  for (AxisRefAttr axis : partial)
    if (failed(use(axis)))
      return failure();
  // Axes of device-local row order may shard dimensions, but not be partial.
  for (auto [i, axis] : llvm::enumerate(own))
    if (llvm::is_contained(partial, axis) ||
        llvm::is_contained(own.drop_front(i + 1), axis))
      return emitError() << "axis \"" << axis.getName()
                         << "\" is used twice in one sharding";
  return success();
}

//===--- meshes -----------------------------------------------------------===//

AxisAttr MeshOp::getAxis(StringRef name) {
  for (auto axis : getAxes().getAsRange<AxisAttr>())
    if (axis.getName() == name)
      return axis;
  return {};
}

int64_t MeshOp::getDeviceCount() {
  int64_t count = 1;
  for (auto axis : getAxes().getAsRange<AxisAttr>())
    count *= axis.getSize();
  return count;
}

LogicalResult MeshOp::verify() {
  llvm::StringMap<bool> seen;
  int64_t devices = 1;
  for (auto axis : getAxes().getAsRange<AxisAttr>()) {
    if (!seen.try_emplace(axis.getName(), true).second)
      return emitOpError("has duplicate axis \"") << axis.getName() << "\"";
    if (llvm::MulOverflow(devices, axis.getSize(), devices))
      return emitOpError("has more devices than fit 63 bits");
  }
  return success();
}

// The axis must exist, and a sub-axis must divide it.
static LogicalResult
verifyAxis(MeshOp mesh, AxisRefAttr ref,
           llvm::function_ref<InFlightDiagnostic()> emitError) {
  AxisAttr axis = mesh.getAxis(ref.getName());
  if (!axis)
    return emitError() << "mesh @" << mesh.getSymName() << " has no axis \""
                       << ref.getName() << "\"";
  if (!ref.isWhole() && axis.getSize() % (ref.getPre() * ref.getSize()))
    return emitError() << "sub-axis (" << ref.getPre() << ")" << ref.getSize()
                       << " does not divide axis \"" << ref.getName()
                       << "\" of size " << axis.getSize();
  return success();
}

int64_t tessera::dist::deviceCount(MeshOp mesh, ArrayRef<AxisRefAttr> axes) {
  int64_t count = 1;
  for (AxisRefAttr ref : axes)
    count *=
        ref.isWhole() ? mesh.getAxis(ref.getName()).getSize() : ref.getSize();
  return count;
}

// Axes exist, factors multiply to the dimension, no factor has more shards than
// elements.
static LogicalResult
verifyDim(DimShardingAttr dim, MeshOp mesh, int64_t size, size_t number,
          llvm::function_ref<InFlightDiagnostic()> emitError) {
  int64_t product = 1;
  for (FactorAttr factor : dim.getFactors()) {
    for (AxisRefAttr axis : factor.getAxes())
      if (failed(verifyAxis(mesh, axis, emitError)))
        return failure();
    int64_t elements = factor.getSize() ? factor.getSize() : size;
    int64_t pieces = deviceCount(mesh, factor.getAxes());
    if (pieces > 1 && pieces > elements)
      return emitError() << "dimension " << number << " of size " << elements
                         << " cannot be split into " << pieces << " shards";
    if (llvm::MulOverflow(product, elements, product))
      return emitError() << "dimension " << number
                         << " has factors beyond 63 bits";
  }
  if (!dim.getFactors().empty() && product != size)
    return emitError() << "dimension " << number << " of size " << size
                       << " is not the product of its factors, " << product;
  return success();
}

LogicalResult tessera::dist::verifySharding(
    ShardingAttr sharding, MeshOp mesh, RankedTensorType type,
    llvm::function_ref<InFlightDiagnostic()> emitError) {
  if (static_cast<int64_t>(sharding.getDims().size()) != type.getRank())
    return emitError() << "sharding has " << sharding.getDims().size()
                       << " dimensions, the tensor has " << type.getRank();
  for (auto [i, dim] : llvm::enumerate(sharding.getDims()))
    if (failed(verifyDim(dim, mesh, type.getDimSize(i), i, emitError)))
      return failure();
  for (ArrayRef<AxisRefAttr> axes : {sharding.getPartial(), sharding.getOwn()})
    for (AxisRefAttr axis : axes)
      if (failed(verifyAxis(mesh, axis, emitError)))
        return failure();
  return success();
}

//===--- resharding and collectives ---------------------------------------===//

// From the op that produces the value, or the loop that carries it.
static bool isPartialAlong(Value value, AxisRefAttr axis) {
  Operation *op = value.getDefiningOp();
  unsigned number = 0;
  if (auto result = dyn_cast<OpResult>(value)) {
    number = result.getResultNumber();
  } else if (unsigned i = cast<BlockArgument>(value).getArgNumber();
             i > 0) { // after the induction variable
    op = value.getParentBlock()->getParentOp();
    number = i - 1;
  }
  if (auto reshard = dyn_cast_if_present<ReshardOp>(op))
    return llvm::is_contained(reshard.getTo().getPartial(), axis);
  auto shardings =
      op ? op->getAttrOfType<ArrayAttr>(kShardingsAttr) : ArrayAttr();
  if (!shardings)
    return false;
  auto sharding = dyn_cast<ShardingAttr>(shardings[number]);
  return sharding && llvm::is_contained(sharding.getPartial(), axis);
}

LogicalResult ReshardOp::verify() {
  auto mesh =
      SymbolTable::lookupNearestSymbolFrom<MeshOp>(*this, getTo().getMesh());
  if (!mesh)
    return emitOpError("names mesh ")
           << getTo().getMesh() << ", which is not in the module";
  for (AxisRefAttr axis : getTo().getPartial())
    if (!isPartialAlong(getInput(), axis))
      return emitOpError("cannot make a value partial along axis \"")
             << axis.getName() << "\": a sum has no unique parts";
  return verifySharding(getTo(), mesh,
                        cast<RankedTensorType>(getResult().getType()),
                        [&] { return emitOpError(); });
}

static RankedTensorType resultTensor(Type type) {
  if (auto pending = dyn_cast<PendingType>(type))
    return pending.getTensor();
  return cast<RankedTensorType>(type);
}

static LogicalResult verifyDim(Operation *op, int64_t dim,
                               RankedTensorType type) {
  if (dim < 0 || dim >= type.getRank())
    return op->emitOpError("has no dimension ") << dim << " in " << type;
  return success();
}

// Mesh and axes exist; the result has the shape that `expected` computes for n
// devices.
template <typename Op>
static LogicalResult verifyCollective(
    Op op, SymbolTableCollection &symbols,
    llvm::function_ref<LogicalResult(int64_t devices,
                                     SmallVectorImpl<int64_t> &shape)>
        expected) {
  auto mesh = symbols.lookupNearestSymbolFrom<MeshOp>(op, op.getMeshAttr());
  if (!mesh)
    return op.emitOpError("names mesh ")
           << op.getMeshAttr() << ", which is not in the module";
  SmallVector<AxisRefAttr> axes(
      op.getAxes().template getAsRange<AxisRefAttr>());
  for (AxisRefAttr axis : axes)
    if (failed(verifyAxis(mesh, axis, [&] { return op.emitOpError(); })))
      return failure();
  auto input = cast<RankedTensorType>(op.getInput().getType());
  SmallVector<int64_t> shape(input.getShape());
  if (failed(expected(deviceCount(mesh, axes), shape)))
    return failure();
  RankedTensorType result = resultTensor(op.getResult().getType());
  if (result.getShape() != ArrayRef<int64_t>(shape) ||
      result.getElementType() != input.getElementType())
    return op.emitOpError("result must be ")
           << RankedTensorType::get(shape, input.getElementType()) << ", got "
           << result;
  return success();
}

static LogicalResult divide(Operation *op, SmallVectorImpl<int64_t> &shape,
                            int64_t dim, int64_t devices) {
  if (shape[dim] % devices)
    return op->emitOpError("dimension ")
           << dim << " of size " << shape[dim] << " does not divide among "
           << devices << " devices";
  shape[dim] /= devices;
  return success();
}

LogicalResult AllReduceOp::verify() { return success(); }

LogicalResult AllReduceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyCollective(
      *this, symbols,
      [](int64_t, SmallVectorImpl<int64_t> &) { return success(); });
}

// The sum of shard sizes: one for each device, none negative.
static FailureOr<int64_t> sumOfShares(Operation *op, ArrayRef<int64_t> shares,
                                      int64_t devices) {
  if (static_cast<int64_t>(shares.size()) != devices)
    return op->emitOpError("has ")
           << shares.size() << " shares for " << devices << " devices";
  int64_t sum = 0;
  for (int64_t share : shares)
    if (share < 0 || llvm::AddOverflow(sum, share, sum))
      return op->emitOpError("has a negative entry in shares");
  return sum;
}

static LogicalResult verifyIsShare(Operation *op, ArrayRef<int64_t> shares,
                                   int64_t size) {
  if (!llvm::is_contained(shares, size))
    return op->emitOpError("has a shard of size ")
           << size << ", which is not in shares";
  return success();
}

LogicalResult AllGatherOp::verify() {
  return verifyDim(*this, getDim(),
                   cast<RankedTensorType>(getInput().getType()));
}

LogicalResult AllGatherOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyCollective(
      *this, symbols,
      [&](int64_t devices, SmallVectorImpl<int64_t> &shape) -> LogicalResult {
        if (!getShares()) {
          shape[getDim()] *= devices;
          return success();
        }
        FailureOr<int64_t> sum = sumOfShares(*this, *getShares(), devices);
        if (failed(sum) ||
            failed(verifyIsShare(*this, *getShares(), shape[getDim()])))
          return failure();
        shape[getDim()] = *sum;
        return success();
      });
}

LogicalResult ReduceScatterOp::verify() {
  return verifyDim(*this, getDim(),
                   cast<RankedTensorType>(getInput().getType()));
}

LogicalResult
ReduceScatterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyCollective(
      *this, symbols,
      [&](int64_t devices, SmallVectorImpl<int64_t> &shape) -> LogicalResult {
        if (!getShares())
          return divide(*this, shape, getDim(), devices);
        FailureOr<int64_t> sum = sumOfShares(*this, *getShares(), devices);
        if (failed(sum))
          return failure();
        if (*sum != shape[getDim()])
          return emitOpError("shares add up to ")
                 << *sum << ", dimension " << getDim() << " has "
                 << shape[getDim()];
        shape[getDim()] =
            resultTensor(getResult().getType()).getDimSize(getDim());
        return verifyIsShare(*this, *getShares(), shape[getDim()]);
      });
}

LogicalResult OffsetOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto mesh = symbols.lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr());
  if (!mesh)
    return emitOpError("names mesh ")
           << getMeshAttr() << ", which is not in the module";
  for (auto axis : getAxes().getAsRange<AxisRefAttr>())
    if (failed(verifyAxis(mesh, axis, [&] { return emitOpError(); })))
      return failure();
  return success();
}

LogicalResult AllToAllOp::verify() {
  auto type = cast<RankedTensorType>(getInput().getType());
  return failed(verifyDim(*this, getSplitDim(), type))
             ? failure()
             : verifyDim(*this, getJoinDim(), type);
}

LogicalResult AllToAllOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyCollective(
      *this, symbols, [&](int64_t devices, SmallVectorImpl<int64_t> &shape) {
        if (failed(divide(*this, shape, getSplitDim(), devices)))
          return failure();
        shape[getJoinDim()] *= devices;
        return success();
      });
}

LogicalResult ExchangeRowsOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  if (input.getRank() != 2 ||
      resultTensor(getResult().getType()).getRank() != 2)
    return emitOpError("moves rows [rows, width], got ") << input;
  return success();
}

LogicalResult ExchangeRowsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyCollective(
      *this, symbols,
      [&](int64_t devices, SmallVectorImpl<int64_t> &shape) -> LogicalResult {
        ArrayRef<int64_t> counts = getCounts().getType().getShape();
        bool placed = counts.size() == 2 && counts[0] == 4 && counts[1] > 0 &&
                      counts[1] % devices == 0;
        if (counts != ArrayRef<int64_t>{2, devices} && !placed)
          return emitOpError("expects counts of type tensor<2x")
                 << devices << "xi32>, or with pieces tensor<4xNxi32> for a "
                 << "multiple of " << devices << ", got "
                 << getCounts().getType();
        shape[0] = resultTensor(getResult().getType()).getDimSize(0);
        return success();
      });
}

LogicalResult PermuteOp::verify() {
  llvm::DenseSet<int64_t> seen;
  int64_t devices = getTargets().size();
  for (int64_t target : getTargets()) {
    if (target < -1 || target >= devices)
      return emitOpError("sends to device ") << target << " of " << devices;
    if (target >= 0 && !seen.insert(target).second)
      return emitOpError("sends to device ") << target << " twice";
  }
  return success();
}

LogicalResult PermuteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyCollective(
      *this, symbols,
      [&](int64_t devices, SmallVectorImpl<int64_t> &) -> LogicalResult {
        if (devices != static_cast<int64_t>(getTargets().size()))
          return emitOpError("has ") << getTargets().size() << " targets for "
                                     << devices << " devices";
        return success();
      });
}

LogicalResult WaitOp::verify() {
  if (cast<PendingType>(getPending().getType()).getTensor() !=
      getResult().getType())
    return emitOpError("waits for ")
           << getPending().getType() << " but gives " << getResult().getType();
  return success();
}

//===--- packs ------------------------------------------------------------===//

Packing tessera::dist::packingOf(TypeRange types, int64_t pieces) {
  Packing packing;
  for (Type type : types) {
    auto tensor = cast<RankedTensorType>(type);
    int64_t bytes = std::max<int64_t>(tensor.getElementTypeBitWidth() / 8, 1);
    packing.offsets.push_back(packing.pieceSize);
    packing.sizes.push_back(tensor.getNumElements() / pieces);
    packing.pieceSize = llvm::alignTo(packing.pieceSize + packing.sizes.back(),
                                      std::max<int64_t>(64 / bytes, 1));
  }
  return packing;
}

static LogicalResult verifyPacking(Operation *op, TypeRange parts, Type packed,
                                   int64_t pieces) {
  auto whole = cast<RankedTensorType>(packed);
  if (parts.empty())
    return op->emitOpError("requires at least one tensor");
  for (Type part : parts) {
    auto type = cast<RankedTensorType>(part);
    if (type.getElementType() != whole.getElementType())
      return op->emitOpError("cannot pack ") << type << " into " << whole;
    if (type.getNumElements() % pieces)
      return op->emitOpError("cannot split ")
             << type << " into " << pieces << " equal pieces";
  }
  int64_t size = packingOf(parts, pieces).pieceSize * pieces;
  if (whole.getRank() != 1 || whole.getNumElements() != size)
    return op->emitOpError("expects ")
           << RankedTensorType::get(size, whole.getElementType()) << ", got "
           << whole;
  return success();
}

LogicalResult PackOp::verify() {
  return verifyPacking(*this, getInputs().getTypes(), getResult().getType(),
                       getPieces());
}

LogicalResult UnpackOp::verify() {
  return verifyPacking(*this, getOutputs().getTypes(), getPacked().getType(),
                       getPieces());
}
