// Which gathers and scatters are done in parts. Decided once for all devices,
// while tensors are whole: they must do the same together, whatever the shapes
// of their shares.
#include "dialects/dist/CollectiveMatmulAttr.h"
#include "hardware/Roofline.h"
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

// A kernel more, in seconds: a round figure of a GPU.
static constexpr double kLaunch = 3e-6;

namespace {

/// Values that are there in parts, and in which dimension, once what is marked
/// goes in parts.
using InParts = llvm::DenseMap<Value, int64_t>;

/// Seconds of the first device, with the whole and in parts. Only what differs
/// counts.
class Estimate {
public:
  Estimate(const PlacementReader &reader, dist::ReshardOp op,
           const DecomposedReshard &how, const InParts &known)
      : reader(reader), known(known), at(reader.mesh.coordinatesOf(0)),
        input(op.getInput()), result(op.getResult()), how(how),
        parts(static_cast<double>(how.devices)) {
    double share = bytes(how.gathers ? input : result);
    send = hardware::defaultLink(reader.mesh.axes[how.axis].getLink())
               .seconds(share);
  }

  /// What is gained by doing it in parts; negative if that loses.
  double gain() const {
    double travels = (parts - 1) * send;
    double exposed = std::max(0.0, travels - beside());
    return exposed + wholeProducts() - inParts();
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

  static double roofline(double flops, double bytes) {
    return hardware::kDefaultDevice.seconds(flops, bytes);
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

  // The loopDim along which a product is cut into parts.
  char loopDimOf(graph::EinsumOp product) const {
    graph::Einsum equation = einsumOf(product);
    if (!how.gathers)
      return equation.out[how.dim];
    bool isLeft = product.getLhs() == result;
    return (isLeft ? equation.lhs : equation.rhs)[how.dim];
  }

  // Of one part: what has the loopDim is as much smaller; other operands are
  // read, and sums are read and written, as a whole each time.
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

  // Read and written once: results that are put together, operands that are
  // taken apart; and what came of a sum, which is added up.
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
    return copied / hardware::kDefaultDevice.bytes + kLaunch;
  }

  double inParts() const {
    double part = 0, more = 0;
    for (graph::EinsumOp product : products()) {
      part += partOf(product);
      more += copiesOf(product) + (parts - 1) * kLaunch;
    }
    return part + (parts - 1) * std::max(part, send) + more;
  }

  // Products beside which it travels as a whole: they stand before the first
  // one that needs it. If only weights' gradients do, there is the whole
  // backward pass.
  double beside() const {
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
  const InParts &known;
  Coordinates at;
  Value input, result; ///< of the reshard
  const DecomposedReshard &how;
  double parts;
  double send; ///< of one share
};

struct CollectiveMatmul
    : tessera::impl::CollectiveMatmulBase<CollectiveMatmul> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mode != "auto" && mode != "on" && mode != "off") {
      module.emitError("mode is auto, on or off, got: ") << mode.getValue();
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
      why = "by the estimate it would take longer in parts";
    }
    if (how && how->gathers)
      known[op.getResult()] = how->dim;
    if (how)
      op->setAttr(dist::kCollectiveMatmulAttr, UnitAttr::get(op->getContext()));
    else if (explain && !why.empty())
      op.emitRemark("stays whole: ") << why;
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

  InParts known;
};
} // namespace
