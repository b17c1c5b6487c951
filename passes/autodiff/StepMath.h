// The arithmetic of a training step outside the model: schedule, clipping and
// update rules, as graph ops on f32 scalars and tensors.
#pragma once
#include "dialects/graph/Build.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/autodiff/Program.h"
#include "runtime/train/Hyper.h"

namespace tessera::autodiff {

/// Scalars of the state tensor `hyper`, each taken out once.
class HyperTable {
public:
  HyperTable(graph::Emitter &e, mlir::Value table) : e(e), table(table) {}
  /// f32[].
  mlir::Value operator[](HyperSlot slot);

private:
  graph::Emitter &e;
  mlir::Value table;
  std::array<mlir::Value, kHyperSlots> taken;
};

/// The learning rate of the step that runs, with t (f32[]) steps done before:
///   t < warmup: lr (t + 1) / warmup
///   otherwise, with p = min(1, (t - warmup) / max(1, total - warmup)):
///     cosine:   lr (r + (1 - r) (1 + cos πp) / 2),  r = min_ratio
///     linear:   lr (r + (1 - r) (1 - p))
///     constant: lr
mlir::Value learningRate(graph::Emitter &e, recipe::ScheduleKind rule,
                         HyperTable &hyper, mlir::Value t);

/// sqrt of the sum of squares over all tensors (f32), which are the gradients
/// of the parameters: f32[].
mlir::Value globalNorm(graph::Emitter &e, mlir::ValueRange gradients,
                       llvm::ArrayRef<Parameter> parameters);

/// min(1, clip / (norm + 1e-6)), 1 where clip is 0
/// (torch.nn.utils.clip_grad_norm_): f32[].
mlir::Value clipScale(graph::Emitter &e, HyperTable &hyper, mlir::Value norm);

/// An update rule.
class Optimizer {
public:
  virtual ~Optimizer() = default;
  virtual llvm::StringRef name() const = 0;
  /// What the checkpoint calls the moments: "<parameter>.<suffix>".
  virtual llvm::SmallVector<llvm::StringRef> momentSuffixes() const = 0;
  /// The scalars (f32[]) that all updates of a step share. `lr` is the step's
  /// learning rate, `t` (f32[]) counts the steps done before.
  virtual llvm::SmallVector<mlir::Value> scalars(graph::Emitter &e,
                                                 HyperTable &hyper,
                                                 mlir::Value lr,
                                                 mlir::Value t) const = 0;
  /// New parameter, then new moments. Tensors have one shape and are f32;
  /// `decay` says whether weight decay applies.
  virtual llvm::SmallVector<mlir::Value>
  update(graph::Emitter &e, mlir::ValueRange scalars, mlir::Value parameter,
         mlir::Value gradient, mlir::ValueRange moments, bool decay) const = 0;
};

/// SGD keeps a momentum buffer only if it has momentum.
std::unique_ptr<Optimizer> makeOptimizer(recipe::OptimizerKind rule,
                                         bool momentum);

} // namespace tessera::autodiff
