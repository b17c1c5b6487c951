// The graph dialect: what is computed. See README.md in this folder.
#pragma once
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/graph/GraphEnums.h.inc"
#include "dialects/graph/Inference.h"
#include "dialects/graph/ShardingRule.h"

namespace tessera::graph::detail {
/// Sums over tensors of their element counts and byte sizes.
int64_t countElements(mlir::ValueRange values);
int64_t countBytes(mlir::ValueRange values);
} // namespace tessera::graph::detail

#include "dialects/graph/GraphInterfaces.h.inc"

#include "dialects/graph/GraphDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/graph/GraphAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/graph/GraphOps.h.inc"

namespace tessera::graph {

// Names of the attributes that functions, their arguments and results, and
// calls carry.
inline constexpr llvm::StringLiteral kBlockAttr =
    "graph.block"; // on a layer's function
inline constexpr llvm::StringLiteral kProgramAttr =
    "graph.program"; // ProgramAttr, on a function
inline constexpr llvm::StringLiteral kLayerAttr =
    "graph.layer"; // LayerAttr, of state and of calls of blocks
inline constexpr llvm::StringLiteral kMicrobatchSumAttr =
    "graph.microbatch_sum"; // on an add: a microbatch's term to a sum of all
inline constexpr llvm::StringLiteral kStateAttr =
    "graph.state"; // checkpoint name
inline constexpr llvm::StringLiteral kRoleAttr = "graph.role"; // RoleAttr
inline constexpr llvm::StringLiteral kDecayAttr =
    "graph.decay"; // weight decay applies
inline constexpr llvm::StringLiteral kFrozenAttr =
    "graph.frozen"; // a parameter without gradient and optimizer
inline constexpr llvm::StringLiteral kKeepF32Attr =
    "graph.keep_f32"; // f32, and what is computed of it, in any precision
inline constexpr llvm::StringLiteral kFlopsAttr =
    "graph.flops"; // i64, on a function: of one execution
inline constexpr llvm::StringLiteral kOriginAttr =
    "graph.origin"; // string, on an op: of what kind of op it is a part
inline constexpr llvm::StringLiteral kStopGradientAttr =
    "graph.stop_gradient"; // an op whose results count as constants
inline constexpr llvm::StringLiteral kMetricAttr =
    "graph.metric"; // a result that is looked at, not differentiated
inline constexpr llvm::StringLiteral kInputAttr =
    "graph.input"; // what the host writes
/// Inputs of training programs with an element, or several, for each token of a
/// batch.
/// Further ones than tokens and targets:
///   document_starts   the position in its sequence of the first token of the
///                     token's document, if documents are separate
///   document_numbers  the number of the token's document in its sequence, or
///                     -100 in padding, if the loss is of whole documents
///   reference         f32: the log-probability of the target by a reference
///                     model, 0 without a target
///   behavior          f32: likewise by the policy that sampled it
///   advantages        f32: by how much its answer was better than expected
///   document_labels   of the token's document: 1 if it is desirable, -1 if it
///                     is not, 0 if it has no label, and in padding
///   teacher_tokens    of each token the most probable next tokens by a
///                     teacher, the most probable first
///   teacher_log_probs f32: their log-probabilities, and that of all others
///                     together
inline constexpr llvm::StringLiteral kBatchInputs[] = {
    "tokens",         "targets",          "document_starts", "document_numbers",
    "reference",      "behavior",         "advantages",      "document_labels",
    "teacher_tokens", "teacher_log_probs"};
/// On @loss: the loss is a mean over groups of so many documents. Without it,
/// over targets.
inline constexpr llvm::StringLiteral kDocumentsPerTermAttr =
    "graph.documents_per_term";
inline constexpr llvm::StringLiteral kOutputAttr =
    "graph.output"; // what the host reads

/// Whether it is a loop over the rounds of exchanges after the first.
inline bool isOverflowLoop(mlir::Operation *op) {
  auto loop = mlir::dyn_cast<LoopOp>(op);
  return loop && loop.getOverflow();
}
/// Whether it is a loop whose number of iterations is data.
inline bool isCountedLoop(mlir::Operation *op) {
  auto loop = mlir::dyn_cast<LoopOp>(op);
  return loop && loop.getCounted();
}

inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return tensorType(value).getShape();
}

/// Layers that a module may have: more than any model, and few enough that a
/// line of text makes no program that fills the memory.
inline constexpr int64_t kMostLayers = 4096;

} // namespace tessera::graph
