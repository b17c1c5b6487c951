// Buffers of several tensors: packs of dist, which are communicated together,
// and stacked rows. Tensors are written there, or copied.
#include "passes/planning/ProgramPlanner.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;
using graph::tensorType;

static int64_t elementBytes(RankedTensorType type) {
  return plan::byteSize(RankedTensorType::get({1}, type.getElementType()));
}

// A launch writes its result in the buffer of `whole`. A collective changes a
// pack, so the result must have no other reader. Nothing changes a stack.
void ProgramPlanner::wantPart(Value input, Operation *whole, int64_t offset) {
  if (offset % plan::kAlignment != 0) // as kernels expect all their buffers
    return;
  bool isRead = isa<graph::ConcatOp>(whole);
  Value made = input;
  while ((isRead || made.hasOneUse()) && made.getDefiningOp<graph::ReshapeOp>())
    made = made.getDefiningOp()->getOperand(0);
  Operation *maker = made.getDefiningOp();
  if ((isRead ? !wanted.contains(made) : made.hasOneUse()) &&
      isa_and_nonnull<tile::LaunchOp>(maker) &&
      maker->getBlock() == whole->getBlock())
    parts.try_emplace(made, whole, offset);
}

void ProgramPlanner::wantParts() {
  // Only of one piece: a tensor is then one run of it.
  function.walk([&](dist::PackOp pack) {
    if (pack.getPieces() != 1)
      return;
    dist::Packing packing = dist::packingOf(pack.getInputs().getTypes(), 1);
    int64_t bytes = elementBytes(tensorType(pack.getResult()));
    for (auto [input, offset] : llvm::zip(pack.getInputs(), packing.offsets))
      wantPart(input, pack, offset * bytes);
  });
  function.walk([&](graph::ConcatOp stack) {
    int64_t offset = 0;
    for (Value row : stack.getInputs()) {
      wantPart(row, stack, offset);
      offset += plan::byteSize(tensorType(row));
    }
  });
}

Buffer *ProgramPlanner::bufferOf(Operation *whole, size_t depth) {
  Buffer *&buffer = wholes[whole];
  if (!buffer)
    buffer = newBuffer(tensorType(whole->getResult(0)), depth);
  return buffer;
}

LogicalResult ProgramPlanner::planStack(graph::ConcatOp stack, size_t depth,
                                        std::vector<Step> &out) {
  if (stack.getDim() != 0)
    return stack.emitOpError("along another dimension than the first is a "
                             "kernel's: fusion missed it");
  Place whole{bufferOf(stack, depth), 0, {}}, place = whole;
  for (Value row : stack.getInputs()) {
    auto made = locations.find(row);
    if ((made == locations.end() || !(made->second == place)) &&
        failed(initialize(row, place, stack, out)))
      return failure();
    place.offset += plan::byteSize(tensorType(row));
  }
  put(stack.getResult(), whole);
  return success();
}

namespace {
/// The runs of one tensor: in itself and in the pack, `bytes` each.
struct Runs {
  Runs(const dist::Packing &packing, size_t tensor, RankedTensorType type)
      : bytes(elementBytes(type)), offset(packing.offsets[tensor] * bytes),
        pieceBytes(packing.pieceSize * bytes),
        type(RankedTensorType::get(packing.sizes[tensor],
                                   type.getElementType())) {}

  Typed inTensor(Place tensor, int64_t piece) const {
    tensor.offset += piece * type.getNumElements() * bytes;
    return {tensor, type};
  }
  Typed inPack(Place pack, int64_t piece) const {
    pack.offset += piece * pieceBytes + offset;
    return {pack, type};
  }

  int64_t bytes, offset, pieceBytes; ///< bytes of an element
  RankedTensorType type;
};
} // namespace

LogicalResult ProgramPlanner::planPack(dist::PackOp pack, size_t depth,
                                       std::vector<Step> &out) {
  Place place{bufferOf(pack, depth), 0, {}};
  int64_t pieces = pack.getPieces();
  dist::Packing packing = dist::packingOf(pack.getInputs().getTypes(), pieces);
  for (auto [i, input] : llvm::enumerate(pack.getInputs())) {
    Runs runs(packing, i, tensorType(input));
    if (auto made = locations.find(input);
        pieces == 1 && made != locations.end() &&
        made->second == runs.inPack(place, 0).place)
      continue;
    FailureOr<Typed> from = read(input, pack, depth, out);
    if (failed(from))
      return failure();
    for (int64_t piece = 0; piece < pieces; ++piece)
      out.push_back(
          {Step::copy,
           pack.getLoc(),
           pack,
           {runs.inTensor(from->place, piece), runs.inPack(place, piece)},
           {}});
  }
  put(pack.getResult(), place);
  return success();
}

LogicalResult ProgramPlanner::planUnpack(dist::UnpackOp unpack, size_t depth,
                                         std::vector<Step> &out) {
  FailureOr<Typed> packed = read(unpack.getPacked(), unpack, depth, out);
  if (failed(packed))
    return failure();
  int64_t pieces = unpack.getPieces();
  dist::Packing packing =
      dist::packingOf(unpack.getOutputs().getTypes(), pieces);
  for (auto [i, output] : llvm::enumerate(unpack.getOutputs())) {
    Runs runs(packing, i, tensorType(output));
    if (pieces == 1) {
      put(output, runs.inPack(packed->place, 0).place);
      continue;
    }
    Place place = placeFresh(output, depth);
    put(output, place);
    for (int64_t piece = 0; piece < pieces; ++piece)
      out.push_back(
          {Step::copy,
           unpack.getLoc(),
           unpack,
           {runs.inPack(packed->place, piece), runs.inTensor(place, piece)},
           {}});
  }
  return success();
}
