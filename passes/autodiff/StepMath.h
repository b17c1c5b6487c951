// The arithmetic of a training step outside the model: schedule, clipping and
// update rules, as graph ops on f32 scalars and tensors.
#pragma once
#include "dialects/graph/Build.h"
#include "passes/autodiff/Autodiff.h"
#include "runtime/train/Hyper.h"

namespace tessera::autodiff {

/// Scalars of the state tensor `hyper`.
class HyperTable {
public:
  HyperTable(graph::Emitter &e, mlir::Value table) : e(e), table(table) {}
  /// f32[].
  mlir::Value operator[](HyperSlot slot) const;

private:
  graph::Emitter &e;
  mlir::Value table;
};

/// The learning rate of the step that runs, with t (f32[]) steps done before:
///   t < warmup: lr (t + 1) / warmup
///   otherwise, with p = min(1, (t - warmup) / max(1, total - warmup)):
///     cosine:   lr (r + (1 - r) (1 + cos πp) / 2),  r = min_ratio
///     linear:   lr (r + (1 - r) (1 - p))
///     constant: lr
mlir::Value learningRate(graph::Emitter &e, ScheduleRule rule,
                         const HyperTable &hyper, mlir::Value t);

/// sqrt of the sum of squares over all tensors (f32): f32[].
mlir::Value globalNorm(graph::Emitter &e, mlir::ValueRange gradients);

/// min(1, clip / (norm + 1e-6)), 1 where clip is 0
/// (torch.nn.utils.clip_grad_norm_): f32[].
mlir::Value clipScale(graph::Emitter &e, const HyperTable &hyper,
                      mlir::Value norm);

/// An update rule with the scalars of one step.
class Optimizer {
public:
  virtual ~Optimizer() = default;
  /// New parameter, then new moments. All tensors have one shape and are f32;
  /// `decay` says whether weight decay applies.
  virtual llvm::SmallVector<mlir::Value> update(mlir::Value parameter,
                                                mlir::Value gradient,
                                                mlir::ValueRange moments,
                                                bool decay) const = 0;
};

/// What the checkpoint calls a rule's moments: "<parameter>.<suffix>".
/// SGD has a momentum buffer only if it has momentum.
llvm::SmallVector<llvm::StringRef> momentSuffixes(OptimizerRule rule,
                                                  bool momentum);

/// `t` (f32[]) counts the steps done before, `lr` is that of this step.
std::unique_ptr<Optimizer> makeOptimizer(OptimizerRule rule, graph::Emitter &e,
                                         const HyperTable &hyper,
                                         mlir::Value lr, mlir::Value t);

} // namespace tessera::autodiff
