// The pass collective-matmul: which gathers and scatters are decomposed. It
// decides once for all devices, while tensors are whole, because all must do
// the same, whatever the shapes of their shards.
#include "dialects/dist/CollectiveMatmulAttr.h"
#include "passes/sharding/DecomposedReshard.h"
#include "passes/sharding/Sharding.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_COLLECTIVEMATMUL
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

namespace {

/// Values that are chunked if the marked reshards are decomposed, and the
/// dimension of their chunks.
using ChunkedDims = llvm::DenseMap<Value, int64_t>;

/// Seconds of the first device, whole and decomposed. Only the difference
/// counts.
class Estimate {
public:
  Estimate(const PlacementReader &reader, dist::ReshardOp op,
           const DecomposedReshard &how, const ChunkedDims &known)
      : reader(reader), known(known), at(reader.mesh.coordinatesOf(0)),
        input(op.getInput()), result(op.getResult()), how(how),
        parts(static_cast<double>(how.devices)) {
    double share = bytes(how.gathers ? input : result);
    send = reader.mesh.links[how.axis].seconds(share);
  }

  /// The seconds that decomposing saves; negative if it is slower.
  double gain() const {
    double travels = (parts - 1) * send;
    double exposed = std::max(0.0, travels - overlapping());
    return exposed + wholeProducts() - decomposed();
  }

private:
  double bytes(Value value) const {
    RankedTensorType type = localType(value);
    return static_cast<double>(type.getNumElements()) *
           std::max(1u, type.getElementTypeBitWidth() / 8);
  }

  RankedTensorType localType(Value value) const {
    return reader.of(value).localType(tensorType(value), reader.mesh, at);
  }

  double roofline(double flops, double bytes) const {
    return reader.mesh.device.seconds(flops, bytes);
  }

  double flopsOf(graph::EinsumOp product) const {
    graph::Einsum equation = einsumOf(product);
    double flops = 2;
    std::string seen;
    for (auto [term, value] : {std::pair{equation.lhs, product.getLhs()},
                               std::pair{equation.rhs, product.getRhs()}})
      for (auto [loopDim, size] : llvm::zip(term, localType(value).getShape()))
        if (seen.find(loopDim) == std::string::npos) {
          seen += loopDim;
          flops *= static_cast<double>(size);
        }
    return flops;
  }

  double wholeOf(graph::EinsumOp product) const {
    return roofline(flopsOf(product), bytes(product.getLhs()) +
                                          bytes(product.getRhs()) +
                                          bytes(product.getResult()));
  }

  SmallVector<graph::EinsumOp> products() const {
    SmallVector<graph::EinsumOp> found;
    if (!how.gathers)
      found.push_back(input.getDefiningOp<graph::EinsumOp>());
    else
      for (Operation *user : result.getUsers())
        found.push_back(cast<graph::EinsumOp>(user));
    return found;
  }

  double wholeProducts() const {
    double seconds = 0;
    for (graph::EinsumOp product : products())
      seconds += wholeOf(product);
    return seconds;
  }

  // The loop dimension along which a matmul is split into chunks.
  char loopDimOf(graph::EinsumOp product) const {
    graph::Einsum equation = einsumOf(product);
    if (!how.gathers)
      return equation.out[how.dim];
    bool isLeft = product.getLhs() == result;
    return (isLeft ? equation.lhs : equation.rhs)[how.dim];
  }

  // Of the matmul of one chunk. Tensors with the loop dimension are smaller;
  // the other operand is read, and a sum is read and written, as a whole.
  double partOf(graph::EinsumOp product) const {
    graph::Einsum equation = einsumOf(product);
    char loopDim = loopDimOf(product);
    auto cut = [&](Value value, const std::string &term) {
      bool has = term.find(loopDim) != std::string::npos;
      return bytes(value) / (has ? parts : 1);
    };
    double traffic = cut(product.getLhs(), equation.lhs) +
                     cut(product.getRhs(), equation.rhs) +
                     cut(product.getResult(), equation.out);
    if (equation.out.find(loopDim) == std::string::npos)
      traffic += bytes(product.getResult());
    return roofline(flopsOf(product) / parts, traffic);
  }

  // Reads and writes of joined results, of split operands, and of received
  // chunks that are added.
  double copiesOf(graph::EinsumOp product) const {
    graph::Einsum equation = einsumOf(product);
    char loopDim = loopDimOf(product);
    double copied = 0;
    auto add = [&](Value value, const std::string &term) {
      size_t dim = term.find(loopDim);
      auto there = known.find(value);
      bool isThere =
          there != known.end() && there->second == static_cast<int64_t>(dim);
      if (value != result && dim != std::string::npos && !isThere)
        copied += 2 * bytes(value);
    };
    add(product.getLhs(), equation.lhs);
    add(product.getRhs(), equation.rhs);
    if (how.gathers)
      add(product.getResult(), equation.out);
    else
      copied += (parts + 1) * bytes(result);
    return copied / reader.mesh.device.bytes + reader.mesh.launch;
  }

  double decomposed() const {
    double part = 0, more = 0;
    for (graph::EinsumOp product : products()) {
      part += partOf(product);
      more += copiesOf(product) + (parts - 1) * reader.mesh.launch;
    }
    return part + (parts - 1) * std::max(part, send) + more;
  }

  // The matmuls that overlap with the whole collective: those before its first
  // user. If only gradients of weights read it, the rest of the backward pass
  // overlaps.
  double overlapping() const {
    if (how.gathers && llvm::all_of(products(), [&](graph::EinsumOp product) {
          return einsumOf(product).out.find(loopDimOf(product)) ==
                 std::string::npos;
        }))
      return std::numeric_limits<double>::infinity();
    double seconds = 0;
    llvm::SmallPtrSet<Operation *, 8> users(result.user_begin(),
                                            result.user_end());
    for (Operation *next = result.getDefiningOp()->getNextNode();
         next && !users.contains(next); next = next->getNextNode())
      if (auto product = dyn_cast<graph::EinsumOp>(next))
        seconds += wholeOf(product);
    return seconds;
  }

  const PlacementReader &reader;
  const ChunkedDims &known;
  Coordinates at;
  Value input, result; ///< of the reshard
  const DecomposedReshard &how;
  double parts;
  double send; ///< of one shard
};

struct CollectiveMatmul
    : tessera::impl::CollectiveMatmulBase<CollectiveMatmul> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mode != "auto" && mode != "on" && mode != "off") {
      module.emitError("mode must be auto, on or off, got: ")
          << mode.getValue();
      return signalPassFailure();
    }
    auto meshes = module.getOps<dist::MeshOp>();
    if (meshes.empty() || mode == "off")
      return;
    Mesh mesh(*meshes.begin());
    PlacementReader reader(mesh);
    known.clear();
    module.walk([&](Operation *op) {
      if (auto reshard = dyn_cast<dist::ReshardOp>(op))
        decide(reshard, reader);
      else
        follow(op);
    });
  }

private:
  void decide(dist::ReshardOp op, const PlacementReader &reader) {
    op->removeAttr(dist::kCollectiveMatmulAttr); // of an earlier decision
    std::string why;
    std::optional<DecomposedReshard> how =
        matchDecomposedReshard(op, reader, why);
    if (how && mode == "auto" &&
        Estimate(reader, op, *how, known).gain() <= 0) {
      how.reset();
      why = "decomposed it would be slower by estimate";
    }
    if (how && how->gathers)
      known[op.getResult()] = how->dim;
    if (how)
      op->setAttr(dist::kCollectiveMatmulAttr, UnitAttr::get(op->getContext()));
    else if (explain && !why.empty())
      op.emitRemark("not decomposed: ") << why;
  }

  // As partition-to-local does.
  void follow(Operation *op) {
    auto dimOf = [&](Value value) -> std::optional<int64_t> {
      auto found = known.find(value);
      return found == known.end() ? std::optional<int64_t>() : found->second;
    };
    if (auto product = dyn_cast<graph::EinsumOp>(op)) {
      graph::Einsum equation = einsumOf(product);
      for (auto [operand, term] : {std::pair{product.getLhs(), equation.lhs},
                                   std::pair{product.getRhs(), equation.rhs}})
        if (auto dim = dimOf(operand);
            dim && operand.getDefiningOp<dist::ReshardOp>())
          if (size_t made = equation.out.find(term[*dim]);
              made != std::string::npos)
            known[product.getResult()] = static_cast<int64_t>(made);
      return;
    }
    for (Value operand : op->getOperands())
      if (auto dim = dimOf(operand)) {
        if (staysChunked(op, *dim,
                         [&](Value value) { return dimOf(value) == dim; }))
          known[op->getResult(0)] = *dim;
        return;
      }
  }

  ChunkedDims known;
};
} // namespace
