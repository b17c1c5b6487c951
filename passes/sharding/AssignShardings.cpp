// Which mesh, where a number of devices is all that is said; the rest is
// decided by Strategy and Shardings and written down by WriteShardings.
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Sharding.h"
#include "passes/sharding/Strategy.h"
#include "passes/sharding/WriteShardings.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_ASSIGNSHARDINGS
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

// "data=2,tensor=4". All ranks of CPU meshes are processes of one machine until
// a cluster says otherwise.
static FailureOr<Mesh> parseMesh(ModuleOp module, StringRef text) {
  SmallVector<dist::AxisAttr> axes;
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    auto [name, number] = part.split('=');
    int64_t size = 0;
    if (name.empty() || number.getAsInteger(10, size) || size < 1)
      return module.emitError("mesh '")
             << text << "' is not a list of axes and sizes such as "
             << "data=2,tensor=4";
    axes.push_back(dist::AxisAttr::get(module.getContext(), name, size,
                                       dist::LinkTier::memory));
  }
  return Mesh(StringAttr::get(module.getContext(), "mesh"), axes);
}

namespace {
/// A mesh, and what its axes cut.
struct Choice {
  Mesh mesh;
  Strategy strategy;
};
} // namespace

// Of all ways to write the number as data × tensor, the one with the lowest
// estimate; the larger data axis where two are equal.
static FailureOr<Choice> chooseMesh(ModuleOp module, Factors &factors,
                                    int64_t devices, ZeroStage zero) {
  std::optional<Choice> best;
  double least = 0;
  for (int64_t tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor)
      continue;
    FailureOr<Mesh> mesh =
        parseMesh(module, "data=" + std::to_string(devices / tensor) +
                              ",tensor=" + std::to_string(tensor));
    FailureOr<Strategy> strategy = chooseStrategy(module, factors, *mesh, zero);
    if (failed(strategy))
      return failure();
    Shardings shardings(factors, *mesh, *strategy);
    if (failed(shardings.build(module)))
      return failure();
    double seconds = estimate(module, *mesh, shardings);
    if (!best || seconds < least)
      best = Choice{*mesh, *strategy}, least = seconds;
  }
  return *best;
}

static FailureOr<Choice> choose(ModuleOp module, Factors &factors,
                                StringRef text, ZeroStage zero) {
  int64_t devices = 0;
  if (StringRef number = text; number.consume_front("auto=")) {
    if (number.getAsInteger(10, devices) || devices < 1)
      return module.emitError("mesh '")
             << text << "' names no number of devices";
    return chooseMesh(module, factors, devices, zero);
  }
  FailureOr<Mesh> mesh = parseMesh(module, text);
  if (failed(mesh))
    return failure();
  FailureOr<Strategy> strategy = chooseStrategy(module, factors, *mesh, zero);
  if (failed(strategy))
    return failure();
  return Choice{*mesh, *strategy};
}

// Who asks for an exchange of rows gets it, or is told why not.
static LogicalResult verifyExchanged(ModuleOp module, const Mesh &mesh,
                                     const Shardings &shardings) {
  std::optional<unsigned> axis = mesh.find("expert");
  if (!axis || mesh.size(*axis) == 1)
    return success();
  return failure(
      module
          .walk([&](graph::SendRowsOp op) {
            if (!op.getAlways() ||
                !exchangedAxes(shardings.wanted(op.getRowsMutable()),
                               shardings.of(op.getSent()))
                     .empty())
              return WalkResult::advance();
            op.emitOpError("cannot exchange rows along the axis 'expert' of ")
                << mesh.size(*axis)
                << ": experts have to divide among its devices, and each "
                   "needs a sequence; change the mesh, or set moe.dispatch "
                   "to auto";
            return WalkResult::interrupt();
          })
          .wasInterrupted());
}

namespace {
struct AssignShardings : tessera::impl::AssignShardingsBase<AssignShardings> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mesh.empty())
      return;
    if (zero < 0 || zero > 3) {
      module.emitError("zero is 0, 1, 2 or 3, got: ") << zero;
      return signalPassFailure();
    }
    Factors factors;
    if (failed(factors.build(module)))
      return signalPassFailure();
    FailureOr<Choice> choice =
        choose(module, factors, mesh, static_cast<ZeroStage>(zero.getValue()));
    if (failed(choice))
      return signalPassFailure();
    const Mesh &grid = choice->mesh;
    Shardings shardings(factors, grid, choice->strategy);
    if (failed(shardings.build(module)) ||
        failed(verifyExchanged(module, grid, shardings)))
      return signalPassFailure();
    writeShardings(module, shardings, grid);
  }
};
} // namespace
