// The postcondition of partition-to-local: a program of one device, whose types
// are those of its shards.
#include "dialects/dist/DistOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/sharding/Placement.h"
#include "passes/sharding/Sharding.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

namespace tessera {
#define GEN_PASS_DEF_VERIFYPARTITION
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

namespace {

/// One of a function's arguments or results.
struct Boundary {
  func::FuncOp function;
  StringRef what;
  unsigned number;
  Type type;
  DictionaryAttr attrs;

  InFlightDiagnostic emitError() const {
    return func::FuncOp(function).emitError() << what << " " << number << " ";
  }
};

class PartitionVerifier {
public:
  PartitionVerifier(ModuleOp module, dist::MeshOp mesh, int64_t device)
      : module(module), mesh(mesh), at(this->mesh.coordinatesOf(device)) {}

  LogicalResult run() {
    bool ok = true;
    module.walk([&](Operation *op) {
      if (isa<dist::ReshardOp, dist::OffsetOp>(op)) {
        op->emitOpError("is not local; run partition-to-local first");
        ok = false;
      } else if (op->hasAttr(dist::kShardingsAttr)) {
        op->emitOpError("still has '") << dist::kShardingsAttr << "'";
        ok = false;
      }
    });
    for (auto function : module.getOps<func::FuncOp>())
      ok &= succeeded(verify(function));
    return success(ok);
  }

private:
  LogicalResult verify(func::FuncOp function) {
    bool ok = true;
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
      ok &= succeeded(
          verify({function, "argument", static_cast<unsigned>(i), type,
                  function.getArgAttrDict(static_cast<unsigned>(i))}));
    for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
      ok &= succeeded(
          verify({function, "result", static_cast<unsigned>(i), type,
                  function.getResultAttrDict(static_cast<unsigned>(i))}));
    return success(ok);
  }

  // The host cuts state and inputs by these two attributes.
  LogicalResult verify(const Boundary &boundary) const {
    if (!boundary.attrs)
      return success();
    auto sharding =
        boundary.attrs.getAs<dist::ShardingAttr>(dist::kShardingAttr);
    auto shape =
        boundary.attrs.getAs<DenseI64ArrayAttr>(dist::kGlobalShapeAttr);
    if (!sharding && !shape)
      return success();
    if (!sharding || !shape)
      return boundary.emitError()
             << "has '"
             << (sharding ? dist::kShardingAttr : dist::kGlobalShapeAttr)
             << "' without '"
             << (sharding ? dist::kGlobalShapeAttr : dist::kShardingAttr)
             << "'";
    auto type = dyn_cast<RankedTensorType>(boundary.type);
    if (!type || shape.size() != type.getRank())
      return boundary.emitError()
             << "is " << boundary.type << ", a shard of a tensor of rank "
             << shape.size();
    auto global = type.clone(shape.asArrayRef());
    RankedTensorType local =
        Placement::fromAttr(sharding, global, mesh).localType(global, mesh, at);
    if (local != type)
      return boundary.emitError() << "is " << type << ", but its shard of "
                                  << global << " is " << local;
    return success();
  }

  ModuleOp module;
  Mesh mesh;
  Coordinates at;
};

struct VerifyPartition : tessera::impl::VerifyPartitionBase<VerifyPartition> {
  using Base::Base;
  void runOnOperation() override {
    auto meshes = getOperation().getOps<dist::MeshOp>();
    if (meshes.empty())
      return markAllAnalysesPreserved();
    dist::MeshOp mesh = *meshes.begin();
    if (device < 0 || device >= mesh.getDeviceCount()) {
      getOperation().emitError("device ")
          << device << " is not in the mesh of " << mesh.getDeviceCount();
      return signalPassFailure();
    }
    if (failed(PartitionVerifier(getOperation(), mesh, device).run()))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
