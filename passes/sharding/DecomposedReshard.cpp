#include "passes/sharding/DecomposedReshard.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

// Collectives over this axis are needed at once. Collectives over other axes
// move gradients and parameters, and overlap with other work anyway.
static constexpr StringLiteral kAxis = "tensor";

graph::Einsum sharding::einsumOf(graph::EinsumOp op) {
  return llvm::cantFail(graph::Einsum::parse(op.getEquation()));
}

bool sharding::staysChunked(Operation *op, int64_t dim,
                            llvm::function_ref<bool(Value)> isInParts) {
  if (!isa<graph::Elementwise>(op) || op->getNumResults() != 1 ||
      !isa<FloatType>(tensorType(op->getResult(0)).getElementType()))
    return false;
  return llvm::all_of(op->getOperands(), [&](Value value) {
    if (isInParts(value))
      return true;
    if (auto broadcast = value.getDefiningOp<graph::BroadcastOp>())
      return !llvm::is_contained(broadcast.getDims(), dim);
    auto constant = value.getDefiningOp<graph::ConstantOp>();
    return constant && isa<SplatElementsAttr>(constant.getValue());
  });
}

// The only dimension in which the placements differ.
static std::optional<int64_t> otherDim(const Placement &from,
                                       const Placement &to) {
  std::optional<int64_t> found;
  for (auto [d, pair] : llvm::enumerate(llvm::zip(from.dims, to.dims))) {
    if (std::get<0>(pair) == std::get<1>(pair))
      continue;
    if (found)
      return std::nullopt;
    found = static_cast<int64_t>(d);
  }
  return found;
}

// The axis that shards `fine` after the axes that also shard `coarse`.
static std::optional<unsigned> addedAxis(const DimPlacement &coarse,
                                         const DimPlacement &fine) {
  if (coarse.size() != 1 || fine.size() != 1 ||
      fine[0].axes.size() != coarse[0].axes.size() + 1 ||
      ArrayRef(fine[0].axes).drop_back() != ArrayRef(coarse[0].axes))
    return std::nullopt;
  return fine[0].axes.back();
}

// Whether all users are matmuls in the reshard's block that read it once.
static bool onlyProductsRead(dist::ReshardOp op) {
  Value value = op.getResult();
  return !value.use_empty() &&
         llvm::all_of(value.getUsers(), [&](Operation *user) {
           return isa<graph::EinsumOp>(user) &&
                  user->getBlock() == op->getBlock() &&
                  llvm::count(user->getOperands(), value) == 1;
         });
}

static bool isMadeByProduct(dist::ReshardOp op, int64_t dim) {
  auto product = op.getInput().getDefiningOp<graph::EinsumOp>();
  return product && product->hasOneUse() &&
         product->getBlock() == op->getBlock() &&
         dim < tensorType(product.getResult()).getRank();
}

// Whether a matmul reduces over the gathered dimension and its result is
// replicated: each device would add chunks in another order, but all must get
// the same sum. For two devices the order does not matter.
static bool replicatesSum(dist::ReshardOp op, const DecomposedReshard &how,
                          const PlacementReader &reader) {
  return how.devices > 2 &&
         llvm::any_of(op.getResult().getUsers(), [&](Operation *user) {
           auto product = cast<graph::EinsumOp>(user);
           graph::Einsum equation = einsumOf(product);
           const std::string &term =
               product.getLhs() == op.getResult() ? equation.lhs : equation.rhs;
           return equation.out.find(term[how.dim]) == std::string::npos &&
                  !reader.of(product.getResult()).uses(how.axis);
         });
}

std::optional<DecomposedReshard> sharding::matchDecomposedReshard(
    dist::ReshardOp op, const PlacementReader &reader, std::string &why) {
  const Placement &from = reader.of(op.getInput()),
                  &to = reader.of(op.getResult());
  DecomposedReshard made;
  made.gathers = from.partial == to.partial;
  SmallVector<unsigned, 2> settled;
  for (unsigned axis : from.partial)
    if (!llvm::is_contained(to.partial, axis))
      settled.push_back(axis);
  std::optional<int64_t> dim = otherDim(from, to);
  if (!dim || settled.size() > 1 || !from.own.empty() ||
      from.kind != dist::ReduceKind::sum)
    return std::nullopt;
  const DimPlacement &fine = (made.gathers ? from : to).dims[*dim],
                     &coarse = (made.gathers ? to : from).dims[*dim];
  std::optional<unsigned> axis = addedAxis(coarse, fine);
  if (!axis && fine.size() > 1 && llvm::any_of(fine, [&](const Factor &factor) {
        return llvm::any_of(factor.axes, [&](unsigned each) {
          return reader.mesh.axes[each].getName() == kAxis;
        });
      }))
    why = "its dimension is sharded in stripes";
  if (!axis || (!made.gathers && settled.front() != *axis))
    return std::nullopt;
  made.axis = *axis, made.dim = *dim;
  made.devices = reader.mesh.size(*axis);
  if (reader.mesh.axes[*axis].getName() != kAxis || made.devices < 2)
    return std::nullopt;
  if (made.gathers ? !onlyProductsRead(op) : !isMadeByProduct(op, *dim)) {
    why = made.gathers ? "not all users of the gathered tensor are matmuls"
                       : "its input is not a matmul that only it reads";
    return std::nullopt;
  }
  if (made.gathers && replicatesSum(op, made, reader)) {
    why = "devices would add the chunks of one sum in different orders";
    return std::nullopt;
  }
  if (fine[0].size % reader.mesh.size(fine[0].axes) ||
      tensorType(op.getResult()).getNumElements() == 0) {
    why = "shards of " + std::to_string(fine[0].size) + " are uneven";
    return std::nullopt;
  }
  return made;
}
