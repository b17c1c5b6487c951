// Packs of dist: tensors that are communicated together are written into one
// buffer, or copied into it.
#include "passes/planning/ProgramPlanner.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;
using graph::tensorType;

static int64_t elementBytes(RankedTensorType type) {
  return plan::byteSize(RankedTensorType::get({1}, type.getElementType()));
}

// Only of one piece: a tensor is then one run of it, and a launch whose result
// has no other reader may write there.
void ProgramPlanner::wantParts() {
  function.walk([&](dist::PackOp pack) {
    if (pack.getPieces() != 1)
      return;
    dist::Packing packing = dist::packingOf(pack.getInputs().getTypes(), 1);
    int64_t bytes = elementBytes(tensorType(pack.getResult()));
    for (auto [input, offset] : llvm::zip(pack.getInputs(), packing.offsets)) {
      Value made = input;
      while (made.hasOneUse() && made.getDefiningOp<graph::ReshapeOp>())
        made = made.getDefiningOp()->getOperand(0);
      Operation *maker = made.getDefiningOp();
      if (made.hasOneUse() && isa_and_nonnull<tile::LaunchOp>(maker) &&
          maker->getBlock() == pack->getBlock())
        parts[made] = {pack, offset * bytes};
    }
  });
}

Buffer *ProgramPlanner::bufferOf(dist::PackOp pack, size_t depth) {
  Buffer *&buffer = packs[pack];
  if (!buffer)
    buffer = newBuffer(tensorType(pack.getResult()), depth);
  return buffer;
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
