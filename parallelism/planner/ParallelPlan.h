// A parallelism plan: how a training step is distributed over GPUs. And the
// workload of the step.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/Cluster.h"
#include "parallelism/planner/ModelShape.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/support/Status.h"

namespace tessera::planner {

/// The activations that the backward pass recomputes.
enum class Recompute {
  None,
  /// Cheap ones: norms, activation functions and dropout, and the scores of
  /// attention if they are kept at all (Korthikanti et al., arXiv 2205.05198).
  Selective,
  /// Selective, and the attention block from the layer's input.
  Attention,
  /// The whole layer from its input.
  Full,
};

/// Orders of forward and backward passes; parallelism/pipeline has their lists.
enum class Schedule {
  OneF1B,       ///< also without a pipeline
  Interleaved,  ///< several chunks per rank (Narayanan et al., 2104.04473)
  ZeroBubbleH1, ///< weight gradients fill the drain (Qi et al., 2401.10241)
};

std::string_view name(Recompute recompute);
std::string_view name(Schedule schedule);

/// Degrees of parallelism. Ranks are numbered tensor first, then context, data
/// and pipe, so that ranks that communicate most are nearest. Replicas are
/// blocks of consecutive ranks of a stage. Experts factor the same tensor *
/// context * data ranks of a stage differently: expertTensor first, then
/// expert, then copies of experts (MoE parallel folding, arXiv 2504.14960).
struct ParallelPlan {
  int64_t pipe = 1;
  int64_t interleave = 1; ///< chunks of layers per rank
  int64_t tensor = 1;     ///< with sequence parallelism
  int64_t context = 1;    ///< ring attention
  int64_t data = 1;
  /// Groups of data ranks that each have all state, sharded inside the group
  /// (hybrid sharding: FSDP, arXiv 2304.11277, section 3.2.2).
  int64_t replicate = 1;
  int64_t expert = 1;
  int64_t expertTensor = 1;
  int zero = 1;      ///< sharded over a replica's data ranks: 0 nothing,
                     ///< 1 optimizer state, 2 gradients too, 3 weights too
  int64_t micro = 1; ///< sequences of a microbatch
  Recompute recompute = Recompute::Selective;
  Schedule schedule = Schedule::OneF1B;
  /// All stages have the same number of layers even if the head makes the last
  /// one slow; otherwise it has fewer, and others have more.
  bool evenStages = false;

  int64_t gpus() const { return pipe * tensor * context * data; }
  int64_t stageRanks() const { return tensor * context * data; }
  /// Ranks that hold the same copy of an expert's weights.
  int64_t expertCopies() const {
    return stageRanks() / (expert * expertTensor);
  }
  /// Ranks over which ZeRO shards what is not of experts.
  int64_t shardRanks() const { return data * context / replicate; }
  /// Ranks over which it shards an expert's.
  int64_t expertShardRanks() const { return expertCopies() / replicate; }
  /// Experts are distributed over tensor ranks, too, instead of sharded.
  bool foldsTensor() const {
    return tensor > 1 && expertTensor == 1 && expert > 1;
  }
  /// Data ranks with different experts: the compiler's mesh axis `expert`.
  int64_t expertData() const {
    return foldsTensor() ? std::max<int64_t>(1, expert / tensor) : expert;
  }
  /// The distance of ranks that exchange rows of experts in programs of this
  /// compiler: context and tensor ranks, which have the same experts, are
  /// nearer.
  int64_t expertStride() const {
    return foldsTensor() ? context : context * tensor;
  }
  bool operator==(const ParallelPlan &) const = default;
};

/// A degree that a search varies, and its value in a plan.
struct Degree {
  std::string_view name;
  int64_t (*of)(const ParallelPlan &plan);
};
inline constexpr Degree searchedDegrees[] = {
    {"pipe", [](const ParallelPlan &plan) { return plan.pipe; }},
    {"interleave", [](const ParallelPlan &plan) { return plan.interleave; }},
    {"tensor", [](const ParallelPlan &plan) { return plan.tensor; }},
    {"context", [](const ParallelPlan &plan) { return plan.context; }},
    {"expert", [](const ParallelPlan &plan) { return plan.expert; }},
    {"replicate", [](const ParallelPlan &plan) { return plan.replicate; }},
    {"zero", [](const ParallelPlan &plan) { return int64_t(plan.zero); }},
    {"micro", [](const ParallelPlan &plan) { return plan.micro; }},
    {"recompute",
     [](const ParallelPlan &plan) { return int64_t(plan.recompute); }}};

/// "PP8 VPP5 TP1 CP1 EP8 DP32 ZeRO-1 micro 1 selective interleaved".
std::string describe(const ParallelPlan &plan);

/// Communication that overlaps with computation. Turning one off exposes it.
struct Overlap {
  bool tensor = true; ///< collectives with chunks of their matmul
  bool expert = true; ///< all-to-all with another microbatch's computation
  bool data = true;   ///< gradients and weights with the last and first layers
  bool pipe = true;   ///< activations between stages
};

/// What programs of this compiler overlap: an all-to-all with nothing.
constexpr Overlap compiledOverlap = {.expert = false};

/// What is trained, and properties of the software.
struct Workload {
  int64_t sequence = 4096;    ///< tokens
  int64_t globalBatch = 1024; ///< sequences
  /// Tokens of the fullest expert over the mean: memory is planned for it. The
  /// time of a rank follows the mean over its experts, which varies less.
  double imbalance = 1.3;
  /// Rows of experts that ranks exchange, over the mean: programs for GPUs of
  /// this compiler send whole buffers, each row to its rank; 0: buffers have
  /// room for all rows. Absent: the rows that there are, to a node once, which
  /// forwards them inside.
  std::optional<double> exchangedRows;
  bool fp8 = false; ///< matmuls of linear layers
  recipe::Precision precision = recipe::Precision::Bf16; ///< of all else
  bool flashAttention = true; ///< scores are never in memory
  /// Attention feeds asynchronous tensor cores as such (FlashAttention-3,
  /// cuDNN); otherwise with the instructions of older chips (FlashAttention-2).
  bool asynchronousAttention = true;
  /// Of the forward products of linear layers, the fraction that the backward
  /// pass repeats though the plan's recomputation keeps their results.
  double repeatedProducts = 0;
  /// Passes over memory of elementwise work: 1 if it is fused into few kernels;
  /// about 2.5 op by op, with norms and rotations in fp32.
  double elementwisePasses = 1;
  bool chunkedLoss = true; ///< never has all logits in memory
  /// Memory is that of a program of this compiler (CompiledMemory.cpp), not of
  /// software that keeps gradients and weights for the whole step.
  bool compiled = false;
  /// Blocks run forward once more before a step, to count the tokens of experts
  /// in all microbatches (the recipe's moe.balance: global).
  bool countsBefore = false;
  bool dropout = false;     ///< on results of sub-layers; a byte per element
  double elementBytes = 2;  ///< of weights and activations; 4: fp32
  double gradientBytes = 4; ///< per element, as accumulated and reduced
  /// Of Adam's two moments and the master copy together, per parameter.
  double optimizerBytes = 12;
  /// Device memory that every plan uses: CUDA's context, NCCL's channels, the
  /// libraries' workspaces.
  double libraryBytes = 1.5e9;
  Overlap overlap;
};

/// Microbatches of a step; 0 if the batch does not divide.
int64_t microbatches(const ParallelPlan &plan, const Workload &workload);

/// Why a plan is impossible, before any cost is computed.
enum class Constraint {
  None,
  Gpus,         ///< the degrees' product is not the number of GPUs
  Heads,        ///< tensor parallelism does not divide (key) heads
  Width,        ///< ... or the MLP
  Layers,       ///< fewer layers than chunks
  Sequence,     ///< context parallelism does not divide the sequence
  Batch,        ///< micro * data does not divide the batch
  Microbatches, ///< too few, or, if interleaved, not a multiple of the stages
  Experts,      ///< experts, or a stage's ranks, do not divide
  NodeBound,    ///< tensor parallelism across nodes
  Schedule,     ///< the schedule does not fit pipe or interleave
  Replicas,     ///< data ranks do not make them, or their state is not sharded
  Sharding,     ///< nothing to shard, or gathers for every microbatch
  Compiler,     ///< no mesh and recipe of this compiler say it (PlanFile.h)
  Memory,       ///< found by the memory model
};

/// In a few words, for people: "memory", "heads do not divide".
std::string_view name(Constraint constraint);

/// The first constraint that `plan` breaks, except Memory, and the numbers
/// (empty if none).
struct Violation {
  Constraint constraint = Constraint::None;
  std::string detail;
};
Constraint firstViolation(const ModelShape &model, const Cluster &cluster,
                          const Workload &workload, const ParallelPlan &plan);
Violation explainViolation(const ModelShape &model, const Cluster &cluster,
                           const Workload &workload, const ParallelPlan &plan);

/// Counts of replicas worth considering for a plan whose gradients or weights
/// are sharded, the fewest first: replicas of 1, 2, 4, … groups that the
/// nearest links join. None if all ranks of a stage are in one such group.
std::vector<int64_t> replicaCounts(const Cluster &cluster,
                                   const ParallelPlan &plan);

/// Reads "pipe=8,interleave=5,expert=8,zero=1,micro=1": keys are the members'
/// names (expert-tensor for expertTensor), recompute and schedule by name,
/// stages even or balanced. What is left out is 1, except that `data` is what
/// `gpus` leave, the schedule follows from pipe and interleave, zero is 1 and
/// recompute selective. Errors begin with "--fix".
StatusOr<ParallelPlan> parsePlan(std::string_view text, int64_t gpus);

} // namespace tessera::planner
