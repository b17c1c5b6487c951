// The pass assign-shardings: Strategy and Shardings decide, WriteShardings
// writes the result into the IR.
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Sharding.h"
#include "passes/sharding/Strategy.h"
#include "passes/sharding/WriteShardings.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

namespace tessera {
#define GEN_PASS_DEF_ASSIGNSHARDINGS
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

// "data=2,tensor=4".
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
    axes.push_back(dist::AxisAttr::get(module.getContext(), name, size));
  }
  return Mesh(StringAttr::get(module.getContext(), "mesh"), axes,
              dist::ratesOf(module));
}

// An error if the model requires an exchange of rows that is not possible.
static LogicalResult verifyExchanged(ModuleOp module, const Mesh &mesh,
                                     const Shardings &shardings,
                                     ArrayRef<unsigned> axes) {
  if (axes.empty())
    return success();
  std::string names = llvm::join(
      llvm::map_range(axes,
                      [&](unsigned axis) {
                        return "'" + mesh.axes[axis].getName().str() + "'";
                      }),
      " and ");
  StringRef needs = axes.size() == 1 && mesh.find("expert") == axes.front()
                        ? "a sequence"
                        : "a sequence, or tokens if moe.capacity is 0";
  return failure(
      module
          .walk([&](graph::SendRowsOp op) {
            if (!op.getAlways() ||
                !exchangedAxes(shardings.wanted(op.getRowsMutable()),
                               shardings.of(op.getSent()))
                     .empty())
              return WalkResult::advance();
            op.emitOpError("cannot exchange rows among ")
                << mesh.size(axes) << " devices along " << names
                << ": experts must divide evenly among them, and each needs "
                << needs << "; change the mesh, or set moe.dispatch to auto";
            return WalkResult::interrupt();
          })
          .wasInterrupted());
}

static void remark(ModuleOp module, const SearchEffort &effort) {
  InFlightDiagnostic remark = module.emitRemark("shardings: ");
  remark << effort.strategies << " strategies by sharding groups";
  if (!effort.solved) {
    remark << "; no search op by op";
    return;
  }
  const auto &solved = *effort.solved;
  auto microseconds = [](double seconds) {
    return llvm::formatv("{0:f3} us", seconds * 1e6).str();
  };
  remark << "; the best has an estimated step of "
         << microseconds(solved.before) << "; op by op ";
  if (solved.failed)
    remark << "no strategy that can be built, for " << solved.nodes
           << " classes of ops and values";
  else if (solved.changed)
    remark << microseconds(solved.after) << ", with " << solved.changed
           << " of " << solved.nodes
           << " classes of ops and values sharded differently";
  else
    remark << "no gain, for " << solved.nodes << " classes of ops and values";
  remark << (solved.isOptimal ? " (optimal among its choices)"
                              : " (not proven optimal)");
}

namespace {
struct AssignShardings : tessera::impl::AssignShardingsBase<AssignShardings> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (mesh.empty())
      return;
    if (zero < 0 || zero > 3) {
      module.emitError("zero must be 0, 1, 2 or 3, got: ") << zero;
      return signalPassFailure();
    }
    if (auto meshes = module.getOps<dist::MeshOp>(); !meshes.empty()) {
      (*meshes.begin())
          .emitError("the module has shardings; give one from before the phase "
                     "shard");
      return signalPassFailure();
    }
    Factors factors(module);
    if (failed(factors.build()))
      return signalPassFailure();
    FailureOr<Mesh> grid = parseMesh(module, mesh);
    if (failed(grid) || failed(verifyDegree(*grid, "tensor", expertTensor)) ||
        failed(verifyDegree(*grid, "context", expertContext)))
      return signalPassFailure();
    Congruence classes(module, factors);
    SearchEffort effort;
    SearchOptions options{static_cast<ZeroStage>(zero.getValue()), solver,
                          parts, expertTensor, expertContext};
    FailureOr<Strategy> strategy =
        chooseStrategy(module, factors, classes, *grid, options, effort);
    if (failed(strategy))
      return signalPassFailure();
    if (explain)
      remark(module, effort);
    Shardings shardings(classes, *grid, *strategy);
    if (failed(shardings.build(module)) ||
        failed(verifyExchanged(module, *grid, shardings,
                               axesOfExperts(*grid, options))))
      return signalPassFailure();
    writeShardings(module, shardings, *grid);
  }

private:
  LogicalResult verifyDegree(const Mesh &grid, StringRef name, int64_t degree) {
    std::optional<unsigned> axis = grid.find(name);
    int64_t size = axis ? grid.size(*axis) : 1;
    if (degree == 0 || degree == 1 || degree == size)
      return success();
    return getOperation().emitError("expert-")
           << name << " must be 0, 1 or the size of the axis " << name << ", "
           << size << ", got: " << degree;
  }
};
} // namespace
