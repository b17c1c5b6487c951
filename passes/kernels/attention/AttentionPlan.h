// Which kernel an attention takes, as an attribute of its cluster. Which there
// are: for CPUs in AttentionPlan.cpp, for GPUs in passes/kernels/gpu.
#pragma once
#include "passes/kernels/KernelPlan.h"
#include "passes/kernels/attention/PagedAttention.h"

namespace tessera {

/// The kernel of a cluster among all that it may take.
struct AttentionChoice {
  tile::AttentionPlanAttr kernel;
  /// Whether the cluster's tile.plan differs from what we would choose.
  bool byHand = false;
  /// Of a GPU: other kernels, which the runtime may time.
  llvm::SmallVector<tile::AttentionPlanAttr> variants;
};

struct ForwardPlan {
  ForwardOperands operands;
  AttentionShape shape;
  AttentionChoice choice;

  int64_t blocksOf(tile::AttentionPlanAttr kernel) const {
    return shape.batch * shape.heads *
           llvm::divideCeil(shape.tokens, kernel.getQueries());
  }
};

struct BackwardPlan {
  BackwardOperands operands;
  AttentionShape shape;
  tile::AttentionPlanAttr kernel;      ///< of CPUs
  tile::AttentionGradPlanAttr kernels; ///< of a GPU

  /// On CPUs a block owns a head of keys: of the documents that begin in a part
  /// of a sequence's tokens, if no query sees another document.
  bool ownsDocuments() const { return shape.hasFirst && shape.causal; }
  int64_t partTokens() const {
    return ownsDocuments() ? shape.queryTile : shape.tokens;
  }
  int64_t parts() const { return llvm::divideCeil(shape.tokens, partTokens()); }
  int64_t blocks() const { return shape.batch * parts() * shape.kvHeads; }
};

struct PagedPlan {
  PagedOperands operands;
  PagedShape shape;
  tile::AttentionPlanAttr kernel;

  /// Parts of the keys that have blocks of their own.
  int64_t splits() const {
    return kernel.getSplit()
               ? llvm::divideCeil(shape.context(), kernel.getSplit())
               : 1;
  }
  int64_t blocks() const {
    return splits() * shape.owners() * shape.batch *
           llvm::divideCeil(shape.rows(), kernel.getQueries());
  }
};

// The operands and the kernel of a cluster: that of its tile.plan, if it has
// one, else the one that is likely the fastest. They fail on clusters that no
// kernel can compute, and if tile.plan names none.
llvm::Expected<ForwardPlan> planAttention(graph::ClusterOp cluster,
                                          const TilingContext &context);
llvm::Expected<BackwardPlan> planAttentionGrad(graph::ClusterOp cluster,
                                               const TilingContext &context);
llvm::Expected<PagedPlan> planPagedAttention(graph::ClusterOp cluster,
                                             const TilingContext &context);

/// What plan-kernels writes and prints, of a cluster of any of these kinds.
llvm::Expected<ClusterPlan> planAnyAttention(graph::ClusterOp cluster,
                                             const TilingContext &context);

/// The cluster's tile.plan if it has one, else the first of `kernels`. The plan
/// must be one of them; with `splitsKeys` it may have any split.
llvm::Expected<AttentionChoice>
takeAttention(graph::ClusterOp cluster,
              llvm::ArrayRef<tile::AttentionPlanAttr> kernels,
              bool splitsKeys = false);

/// The kernels of CPUs for attention and its gradient, the likeliest first.
llvm::SmallVector<tile::AttentionPlanAttr>
cpuAttentionKernels(const AttentionShape &shape, mlir::MLIRContext *mlir);
llvm::Expected<tile::AttentionPlanAttr>
chooseCpuPaged(graph::ClusterOp cluster, const PagedOperands &operands,
               const PagedShape &shape, const TilingContext &context);

/// The text of a plan: kernels of different plans are not shared.
std::string planKey(mlir::Attribute plan, bool byHand = false);

/// The element type of a cluster's argument.
mlir::Type elementOf(graph::ClusterOp cluster, const AttentionOperand &operand);

// The same clusters for a GPU (passes/kernels/gpu).
llvm::Expected<llvm::SmallVector<mlir::Value>>
tileGpuAttention(graph::ClusterOp cluster, const ForwardPlan &plan,
                 TilingContext &context);
llvm::Expected<llvm::SmallVector<mlir::Value>>
tileGpuAttentionGrad(graph::ClusterOp cluster, const BackwardPlan &plan,
                     TilingContext &context);
llvm::Expected<llvm::SmallVector<mlir::Value>>
tileGpuPagedAttention(graph::ClusterOp cluster, const PagedPlan &plan,
                      TilingContext &context);
/// Their choices.
llvm::Expected<AttentionChoice>
chooseGpuAttention(graph::ClusterOp cluster, const ForwardOperands &operands,
                   const AttentionShape &shape, const TilingContext &context);
llvm::Expected<tile::AttentionGradPlanAttr>
chooseGpuAttentionGrad(graph::ClusterOp cluster,
                       const BackwardOperands &operands,
                       const AttentionShape &shape, const TileTarget &target);
llvm::Expected<tile::AttentionPlanAttr>
chooseGpuPaged(graph::ClusterOp cluster, const PagedOperands &operands,
               const PagedShape &shape, const TileTarget &target);
/// The launches of a gradient, for the table.
llvm::SmallVector<ClusterPlan::Launch>
gpuGradLaunches(graph::ClusterOp cluster, const BackwardPlan &plan);

} // namespace tessera
