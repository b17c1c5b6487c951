// Converts clusters to kernels. A skeleton turns one graph.cluster into one or
// more launches; the TilingContext makes each distinct kernel once for each
// target.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "dialects/tile/TileOps.h"
#include "hardware/Targets.h"
#include "mlir/IR/BuiltinOps.h"
#include "passes/fusion/StridedView.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <functional>

namespace tessera {

/// Fills a kernel's body for one target; the builder is in its block, before
/// the terminator that the context adds.
using BuildKernel = std::function<llvm::Error(
    tile::KernelOp, const TileTarget &, mlir::OpBuilder &)>;

/// A kernel variant: another kernel that computes the same.
struct KernelVariant {
  std::string suffix; ///< of its name
  int64_t blocks;
  BuildKernel build;
};

/// A launch, as a skeleton describes it. Block counts and sizes are those of
/// the execution plan: they may depend on whether the targets are GPUs, which
/// have a plan of their own, and on no other property of a target.
struct LaunchSpec {
  std::string name; ///< base of the kernel's name, e.g. "linear_gelu"
  tile::Skeleton skeleton;
  std::string summary; ///< what was fused, for readers
  int64_t flops = 0;   ///< of all blocks, as graph::Costed counts; 0: unknown
  /// Bytes that all blocks read at data-dependent indices, at most; they may be
  /// fewer than the buffer has, since other launches read other parts.
  int64_t gatheredBytes = 0;
  llvm::SmallVector<mlir::Type> buffers;  ///< memrefs, inputs and outputs
  llvm::SmallVector<tile::Access> access; ///< one for each buffer
  llvm::SmallVector<int64_t> sizes;       ///< values of the dynamic sizes
  int64_t blocks = 0;
  llvm::SmallVector<int64_t> reuse; ///< see tile.launch
  /// Two launches with equal keys (and buffers, access, name) share their
  /// kernels.
  std::string key;
  BuildKernel build;
  /// Of a GPU's matmul kernel without sizes: kernel variants that a device may
  /// time and use instead, the likeliest to be faster first.
  llvm::SmallVector<KernelVariant> variants;
  int64_t terms = 0; ///< then: terms of each sum
};

/// Targets by name, all CPU targets if none is named. An error at `loc` for an
/// unknown one, and for a GPU among others: a GPU's grids are its own, those of
/// CPUs are common.
mlir::LogicalResult lookupTargets(llvm::ArrayRef<std::string> names,
                                  mlir::Location loc,
                                  llvm::SmallVectorImpl<TileTarget> &targets);

class TilingContext {
public:
  /// With `allVariants`, matmuls have variants however small they are.
  TilingContext(mlir::ModuleOp module, llvm::ArrayRef<TileTarget> targets,
                bool allVariants = false);

  /// Emits the launch before `at`; makes the kernels if this is the first
  /// launch of its kind. `inputs` are the read and read_write buffers, in
  /// buffer order; returns the write and read_write ones. The types of the
  /// results follow from `outputs` (tensor types, same order).
  llvm::Expected<llvm::SmallVector<mlir::Value>>
  launch(mlir::Operation *at, const LaunchSpec &spec, mlir::ValueRange inputs,
         mlir::TypeRange outputs);
  /// Whether the targets are GPUs; they are all of one kind.
  bool isGpu() const { return !targets.empty() && targets.front().gpu; }
  /// Whether a target has matrix registers.
  bool hasMatrixTiles() const;
  bool emitsAllVariants() const { return allVariants; }
  /// The only target of a GPU, the first of CPUs.
  const TileTarget &target() const { return targets.front(); }

private:
  llvm::Expected<std::string> kernelFor(const LaunchSpec &spec,
                                        mlir::Location loc,
                                        mlir::ValueRange inputs,
                                        mlir::TypeRange outputs);
  llvm::Expected<tile::KernelOp>
  makeKernel(llvm::StringRef name, int64_t blocks, const BuildKernel &build,
             const LaunchSpec &spec, const TileTarget &target,
             mlir::Location loc, mlir::ValueRange inputs,
             mlir::TypeRange outputs);
  llvm::Error makeVariants(tile::KernelOp kernel, const LaunchSpec &spec,
                           const TileTarget &target, mlir::ValueRange inputs,
                           mlir::TypeRange outputs);
  mlir::ModuleOp kernelModule(const TileTarget &target);

  mlir::ModuleOp module;
  llvm::SmallVector<TileTarget> targets;
  bool allVariants;
  llvm::StringMap<std::string> kernels; // key → kernel name
  llvm::StringMap<unsigned> names;      // base name → kernels so far
};

/// On a kernel without dynamic sizes: LaunchSpec.flops, if they are known.
inline constexpr llvm::StringLiteral kKernelFlopsAttr = "tile.flops";
/// LaunchSpec.gatheredBytes, where there are any.
inline constexpr llvm::StringLiteral kGatheredBytesAttr = "tile.gathered_bytes";
/// On a kernel with variants: their names, and LaunchSpec.terms. Each has
/// tile::kBlocksAttr.
inline constexpr llvm::StringLiteral kKernelVariantsAttr = "tile.variants",
                                     kKernelTermsAttr = "tile.terms";
/// On buffers of a GPU's kernels, for readers of their source: the first
/// launch's tensor and its shape.
inline constexpr llvm::StringLiteral kBufferNameAttr = "tile.name",
                                     kBufferShapeAttr = "tile.shape";

/// On a nested module of kernels: the target's name. On a module whose clusters
/// have tile.plan: the names of the targets that the plans are for.
inline constexpr llvm::StringLiteral kTargetAttr = "tile.target",
                                     kTargetsAttr = "tile.targets";

/// One skeleton: replaces `cluster` by launches and returns the values of its
/// results.
using Skeleton = llvm::Expected<llvm::SmallVector<mlir::Value>> (*)(
    graph::ClusterOp cluster, TilingContext &context);

// The skeletons, one file each.
llvm::Expected<llvm::SmallVector<mlir::Value>> tileElementwise(graph::ClusterOp,
                                                               TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>>
tileQuantizedTable(graph::ClusterOp, TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileRow(graph::ClusterOp,
                                                       TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileColumn(graph::ClusterOp,
                                                          TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileReduceAll(graph::ClusterOp,
                                                             TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileScatter(graph::ClusterOp,
                                                           TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileContraction(graph::ClusterOp,
                                                               TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileAttention(graph::ClusterOp,
                                                             TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>>
tileAttentionGrad(graph::ClusterOp, TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>>
tilePagedAttention(graph::ClusterOp, TilingContext &);
llvm::Expected<llvm::SmallVector<mlir::Value>> tileSample(graph::ClusterOp,
                                                          TilingContext &);

/// The view as a memref of the kernel: memref.reinterpret_cast of the buffer.
mlir::Value emitView(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value buffer, const View &view);

} // namespace tessera
