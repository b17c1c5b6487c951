// Writes one device kind's part of an artifact; private to the writer.
#pragma once
#include "compiler/artifact/ArtifactWriter.h"
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/TileOps.h"
#include "runtime/artifact/Artifact_generated.h"

namespace tessera {

/// The schema's name of a type; nullopt where it has none.
std::optional<artifact::ElementType> elementType(mlir::Type type);

/// A named tensor of `type` (f32, bf16, …) at `offset` of `space`, cut as `op`,
/// a plan.state or plan.buffer, says.
std::unique_ptr<artifact::TensorT>
makeTensor(mlir::Operation *op, llvm::StringRef name, mlir::MemRefType type,
           artifact::Role role, artifact::Space space, int64_t offset);

/// A factor of `size` elements, whose axes are those of the mesh.
std::unique_ptr<artifact::CutT> makeCut(dist::FactorAttr factor,
                                        dist::MeshOp mesh, int64_t size);
/// The number of that axis.
uint32_t axisNumber(dist::MeshOp mesh, llvm::StringRef axis);
/// plan.collective but for its buffers and its ticket.
artifact::CollectiveT makeCollective(plan::CollectiveOp op);

std::unique_ptr<artifact::GpuKernelT> makeGpuKernel(const GpuKernel &from);
std::unique_ptr<artifact::GemmT> makeGemm(tile::GemmAttr from);

/// Programs, kernels and code of `part`.
llvm::Expected<std::unique_ptr<artifact::DeviceCodeT>>
writeDevice(const DevicePart &part);

} // namespace tessera
