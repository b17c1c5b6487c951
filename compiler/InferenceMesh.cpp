// What inference programs can be sharded along, and what of them.
#include "compiler/Compilation.h"
#include "compiler/DeviceKinds.h"

using namespace tessera;

// Inference programs are sharded as their weights and heads are; each rank has
// whole inputs, which rank 0 sends.
llvm::Error Compilation::checkInferenceMesh() const {
  if (mesh.axes.empty() || mode == models::Mode::Train)
    return llvm::Error::success();
  auto refuse = [&](const llvm::Twine &why) {
    return makeError("--mesh " + request.mesh + ": " + why.str());
  };
  llvm::SmallVector<llvm::StringRef> axes;
  llvm::StringRef(mesh.axes).split(axes, ',');
  for (llvm::StringRef axis : axes) {
    llvm::StringRef name = axis.split('=').first;
    if (name != "tensor" && name != "expert")
      return refuse(
          "inference programs are sharded along tensor and expert "
          "only; omit '" +
          name + "'" +
          (name == "data" ? ", and start a server for each replica" : ""));
    if (name == "expert" && !config.spec.moe)
      return refuse("the model has no experts; omit 'expert'");
  }
  if (mesh.zero > 0 || mesh.expertTensor > 0 ||
      mesh.collectiveMatmul == CollectiveMatmulMode::On)
    return refuse("inference programs have no zero, expert_tensor or "
                  "collective_matmul=on; omit them");
  for (const DeviceKind &kind : kindsOf(targets))
    if (!kind.isCpu())
      return refuse("inference programs for " + kind.name +
                    " are for one device; omit --mesh, or use CPU targets");
  if (!config.spec.generates())
    return refuse("only models that generate text are sharded; omit --mesh");
  if (config.spec.stateSpace)
    return refuse("recurrent layers are not sharded in inference programs; "
                  "omit --mesh");
  if (request.calibrate)
    return refuse("calibration is for one device; omit --mesh");
  if (recipe.inference.numerics == recipe::Numerics::Training)
    return refuse("inference.numerics=training promises the bits of the "
                  "training program, and ranks sum in another order; set it to "
                  "inference, or omit --mesh");
  if (recipe.adapter.slots > 0)
    return refuse("programs with slots for adapters are not sharded; merge the "
                  "adapter with tessera export --merge");
  return llvm::Error::success();
}
