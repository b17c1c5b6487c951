// recipe.yaml: how a model is trained. Every key has a default, so an empty
// recipe is a recipe.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/AdapterRecipe.h"
#include "runtime/support/Status.h"

namespace tessera::recipe {

enum class OptimizerKind { AdamW, Sgd };
enum class ScheduleKind { Cosine, Linear, Constant };
enum class Precision { Fp32, Bf16, Fp64 };
enum class Recompute { None, Full, Selective };
enum class BalanceScope { Sequence, Microbatch, Global };
enum class DropPolicy { Position, Probability };
enum class RowDispatch { Auto, Gather, Exchange };
/// Joined: tokens see all earlier ones of their sequence. Separate: those of
/// their document, in which positions start at 0.
enum class Documents { Joined, Separate };
/// Of a prompt, whose tokens nothing supervises: a token sees the earlier ones,
/// or all (prefix-LM; Raffel et al. 2019, arXiv 1910.10683).
enum class Prompts { Causal, Bidirectional };
/// Joined: a step is one program. Separate: two, gradients of a batch and the
/// update, for servers that train (runtime/train/SeparateSteps.h).
enum class OptimizerUpdate { Joined, Separate };
/// After an evaluation that misses a gate: the run ends, goes back to the last
/// checkpoint that passed, or only says so.
enum class OnMiss { Stop, RollBack, Note };
/// What is learned. Sft: next tokens, of pretraining too. From pairs of a
/// chosen and a rejected answer:
///   Dpo    Rafailov et al. 2023, arXiv 2305.18290
///   Orpo   Hong et al. 2024, arXiv 2403.07691
///   Simpo  Meng et al. 2024, arXiv 2405.14734
///   Reward a model that scores answers (Bradley-Terry; Ouyang et al. 2022,
///          arXiv 2203.02155), not one that generates them
/// Policy: from answers that the model sampled and what they earned (GRPO; Shao
/// et al. 2024, arXiv 2402.03300). Kto: from answers that are labelled as good
/// or bad (Ethayarajh et al. 2024, arXiv 2402.01306).
/// Distill: from the probabilities that a teacher gives to next tokens (Hinton
/// et al. 2015, arXiv 1503.02531).
enum class Task { Sft, Dpo, Orpo, Simpo, Policy, Kto, Reward, Distill };
/// Of Dpo: -log σ(x), max(0, 1 - x), or (Azar et al. 2023, arXiv 2310.12036)
/// the squared distance of mean log-ratios from 1 / (2 beta).
enum class PreferenceLoss { Sigmoid, Hinge, Ipo };
/// What answers are compared with: log-probabilities that the dataset has of
/// each token, or nothing.
enum class Reference { Stored, None };
/// The probability ratio that is clipped: of each token, or the geometric mean
/// of those of its answer (GSPO; Zheng et al. 2025, arXiv 2507.18071).
enum class PolicyRatio { Token, Sequence };
/// What a policy loss is a mean over: all tokens (DAPO; Yu et al. 2025, arXiv
/// 2503.14476), answers of means over their tokens (GRPO), or answers of sums
/// over tokens / a constant (Dr. GRPO; Liu et al. 2025, arXiv 2503.20783).
enum class PolicyAggregate { Token, Document, Constant };
/// Of KL(policy || reference) at a sampled token, with d = log p - log q of it:
/// d, d^2 / 2, and exp(-d) + d - 1 (Schulman 2020, "Approximating KL
/// Divergence").
enum class KlEstimator { K1, K2, K3 };
/// What the advantage of a sampled token is: its answer's, from the rewards of
/// its group, or estimated with a value head (PPO; Schulman et al. 2017, arXiv
/// 1707.06347) by generalized advantage estimation (2016, arXiv 1506.02438).
enum class Advantages { Rollout, Gae };
/// Over what estimated advantages get mean 0 and deviation 1.
enum class Whitening { None, Step };
/// What a completion's reward is compared with: the mean of its group, that of
/// the others of its group, or nothing.
enum class Baseline { Group, LeaveOneOut, None };
/// What that difference is divided by: the deviation of the group, or nothing.
enum class RewardScale { Group, None };
/// After a reward that could not be had: the run ends, or the completion is not
/// learned from.
enum class RewardFailure { Stop, Drop };
/// With p of the teacher and q of the student: KL(p || q), or KL(q || p), which
/// prefers the likeliest of p (MiniLLM; Gu et al. 2023, arXiv 2306.08543).
enum class Divergence { Forward, Reverse };
enum class Quant { None, Int8, Int4, Fp8 };
enum class KvKind { Auto, Int8 };
/// Which weights have zero points in addition to scales.
enum class ZeroPoints { None, Groups };
enum class WeightLayout { Rows, Packed };
enum class Activations { Auto, Int8 };
enum class Numerics { Auto, Inference, Training };
/// How the vectors of a text's tokens become one: their mean, that of the first
/// token, the largest of each element, their sum over the root of their number.
enum class Pooling { Model, Mean, Cls, Max, MeanSqrt };
/// What becomes of that one: nothing, or the vector of length 1 of the same
/// direction.
enum class Normalize { Model, None, L2 };

/// The recipe's own words: "adamw", "cosine", "bf16", "selective".
std::string_view name(Task task);
/// Whether the task learns from pairs of answers.
bool hasPairs(Task task);
std::string_view name(OptimizerKind kind);
std::string_view name(ScheduleKind kind);
std::string_view name(Precision precision);
std::string_view name(Recompute recompute);
std::string_view name(BalanceScope scope);
std::string_view name(DropPolicy policy);
std::string_view name(RowDispatch dispatch);
std::string_view name(Quant quant);
std::string_view name(KvKind kind);
std::string_view name(ZeroPoints zeros);
std::string_view name(WeightLayout layout);
std::string_view name(Activations activations);
std::string_view name(Numerics numerics);
std::string_view name(Prompts prompts);
std::string_view name(Pooling pooling);
std::string_view name(Normalize normalize);

struct Recipe {
  Task task = Task::Sft;

  /// Learning from pairs of answers.
  struct Preference {
    PreferenceLoss loss = PreferenceLoss::Sigmoid;
    double beta = 0.1;         ///< of Orpo: the weight of its odds ratio
    double margin = 0.5;       ///< simpo only: gamma
    double labelSmoothing = 0; ///< share of pairs that are the wrong way round
    Reference reference = Reference::Stored;
    /// Reward only: the weight of the squared sum of a pair's scores, which
    /// keeps their mean at 0 (Eisenstein et al. 2023, arXiv 2312.09244).
    double center = 0;
    int64_t pairs = 32; ///< that a sequence has at most
    bool operator==(const Preference &) const = default;
  } preference;

  /// Learning from sampled answers.
  struct Policy {
    PolicyRatio ratio = PolicyRatio::Token;
    double clipLow = 0.2; ///< the ratio is clipped to 1 - low … 1 + high
    double clipHigh = 0.2;
    PolicyAggregate aggregate = PolicyAggregate::Document;
    int64_t length = 0; ///< the constant that `constant` divides by; else 0
    struct Kl {
      double beta =
          0; ///< weight of the distance to the reference model; 0: off
      KlEstimator estimator = KlEstimator::K3;
      bool operator==(const Kl &) const = default;
    } kl;
    int64_t documents = 32; ///< that a sequence has at most
    Advantages advantages = Advantages::Rollout;
    /// Gae only. Rewards are those of answers, at their last token, minus
    /// kl.beta times the distance of each token to the reference model.
    struct Gae {
      double gamma = 1;     ///< discount of later rewards
      double lambda = 0.95; ///< and of later errors of the value head
      Whitening whiten = Whitening::Step;
      bool operator==(const Gae &) const = default;
    } gae;
    /// Gae only: the loss of the value head.
    struct Value {
      double weight = 0.1;
      /// A value may move so far from the one before the update; 0: any.
      double clip = 0.2;
      bool operator==(const Value &) const = default;
    } value;
    bool operator==(const Policy &) const = default;
  } policy;

  /// How `tessera rl` makes what a step learns from.
  struct Rollout {
    int64_t prompts = 8;     ///< of a step
    int64_t group = 8;       ///< completions of a prompt
    int64_t maxTokens = 128; ///< of a completion
    /// Steps by which the weights that begin a completion may be older than
    /// those that learn from it. 0: rollouts and steps alternate.
    int64_t staleness = 0;
    Baseline baseline = Baseline::Group;
    RewardScale scale = RewardScale::Group;
    int64_t rewardTimeout = 60; ///< seconds for one completion
    RewardFailure onRewardFailure = RewardFailure::Stop;
    int64_t epochs = 1; ///< times that completions are learned from
    /// Parts of the completions, each of which a step learns from.
    int64_t minibatches = 1;
    /// That learn from the same completions or other parts of them.
    int64_t steps() const { return epochs * minibatches; }
    bool operator==(const Rollout &) const = default;
  } rollout;

  /// Learning from labelled answers.
  struct Kto {
    double beta = 0.1;
    double desirableWeight = 1, undesirableWeight = 1;
    int64_t documents = 64; ///< that a sequence has at most
    bool operator==(const Kto &) const = default;
  } kto;

  struct Optimizer {
    OptimizerKind name = OptimizerKind::AdamW;
    double lr = 3.0e-4; ///< at the top of the schedule
    std::array<double, 2> betas = {0.9, 0.95};
    double eps = 1.0e-8;
    double weightDecay = 0.1; ///< decoupled; tensors of rank >= 2 only
    double momentum = 0.0;    ///< sgd only
    double clip = 1.0;        ///< global gradient norm; 0: off
    OptimizerUpdate update = OptimizerUpdate::Joined;
    bool operator==(const Optimizer &) const = default;
  } optimizer;

  /// Learning rate: 0 to lr over `warmup` steps, then down to minRatio * lr at
  /// step `total` along a cosine or a line (constant: stays at lr).
  struct Schedule {
    ScheduleKind name = ScheduleKind::Cosine;
    int64_t warmup = 0;
    int64_t total = 1000;
    double minRatio = 0.1;
    bool operator==(const Schedule &) const = default;
  } schedule;

  struct Batch {
    int64_t micro = 4;      ///< B: sequences in a microbatch
    int64_t accumulate = 1; ///< A: microbatches in a step
    int64_t sequence = 256; ///< T: tokens in a sequence
    int64_t tokens() const { return micro * accumulate * sequence; }
    static constexpr int64_t mostSequences = 1 << 16; ///< B, and A
    static constexpr int64_t mostLength = 1 << 27;    ///< T
    bool operator==(const Batch &) const = default;
  } batch;

  Precision compute = Precision::Fp32; ///< masters and moments: fp32, or fp64

  Recompute recompute = Recompute::None;

  struct Dropout {
    std::optional<double> rate; ///< absent: the model's own probabilities
    bool operator==(const Dropout &) const = default;
  } dropout;

  /// Of decoders, in training and inference.
  struct Attention {
    Prompts prompts = Prompts::Causal;
    bool operator==(const Attention &) const = default;
  } attention;

  /// How routers are trained; of models with experts only. With f the fraction
  /// of the choices that go to an expert and p the mean of its probability,
  /// both over the tokens of the scope:
  ///   balance loss = experts × Σ f p (1 if balanced; Fedus et al. 2021)
  ///   z loss = mean of (log Σ exp of the logits)² (Zoph et al. 2022)
  /// A layer's are added to the loss with their weights, as means over the
  /// step's tokens.
  struct Moe {
    BalanceScope balance = BalanceScope::Sequence;
    double balanceWeight = 0.01;
    double zWeight = 0.001;
    /// What a selection bias moves in a step towards a balanced load; of models
    /// that have such biases.
    double biasRate = 0.001;
    /// An expert takes ⌈capacity × tokens × chosen / experts⌉ tokens of a
    /// sequence; the rest skip the expert. 0: all.
    double capacity = 0;
    DropPolicy drop =
        DropPolicy::Position; ///< which are dropped: the last, or ///< those
                              ///< with the least probability
    /// How tokens reach experts that are sharded over a mesh: all tokens go to
    /// all devices, or each row to its expert's. Auto: by the estimate.
    RowDispatch dispatch = RowDispatch::Auto;
    /// Rows of experts that a device has a buffer for in an exchange / the mean
    /// number that a device receives; 0: for all rows of all devices.
    double buffer = 1.5;
    /// Steps in which the balance weight grows from nothing, linearly; 0: none.
    int64_t balanceWarmup = 0;
    /// Deviation of the normal noise on a router's logits in training.
    double noise = 0;
    bool operator==(const Moe &) const = default;
  } moe;

  using Adapter = AdapterRecipe;
  Adapter adapter;

  /// Parameters of inference and embedding programs. `chunk` and `pages`
  /// concern the KV cache, which embedding programs lack.
  struct Inference {
    int64_t context = 4096; ///< tokens of a sequence, at most the model's own
    int64_t batch = 8;      ///< sequences that run together
    int64_t chunk = 256;    ///< tokens of a prompt that are read at once
    int64_t page = 64;      ///< tokens of a page of keys
    int64_t pages = 0;      ///< of the cache; 0: enough for a full batch
    /// The type of a cache's keys and values. Auto: as they are computed; int8:
    /// with a scale for each token and head, of keys and of values.
    KvKind kv = KvKind::Auto;
    /// The type of the matrices of linear layers; with int4 the head is int8.
    /// Fp8: e4m3, with scales as integers have them.
    Quant quant = Quant::None;
    /// Their columns with one scale: 32, 64 or 128. This and `zeros` are also
    /// those of adapter.base int8, int4 and fp8 in training.
    int64_t group = 32;
    /// Groups: their integers are counted from a zero point of the group, which
    /// suits weights of mostly one sign. Never of the head, nor of fp8.
    ZeroPoints zeros = ZeroPoints::None;
    /// The layout in memory of bf16 matrices that are not quantized, on CPUs:
    /// row-major, or packed in micropanels of 16 rows (QuantizedLayout.h),
    /// which matmuls read without packing them at run time.
    WeightLayout layout = WeightLayout::Rows;
    /// What many rows, those of prompts, are in products with quantized
    /// weights on CPUs. Auto: bf16 or f32, by f32 weights; int8: integers of 8
    /// bits, by those of the weights.
    Activations activations = Activations::Auto;
    /// Training: log-probabilities of tokens have the bits that a training
    /// step's forward pass gives them, and the programs compute them. Auto:
    /// training for the sampler of tessera rl, otherwise inference.
    Numerics numerics = Numerics::Auto;
    /// Of encoders; Model: as the model's modules.json says.
    Pooling pooling = Pooling::Model;
    Normalize normalize = Normalize::Model;
    bool operator==(const Inference &) const = default;
  } inference;

  int64_t seed = 1337;

  struct Data {
    std::optional<std::string> train, eval; ///< directories of token shards
    Documents documents = Documents::Joined;
    bool operator==(const Data &) const = default;
  } data;

  struct Eval {
    int64_t every = 100; ///< steps; 0: never
    int64_t batches = 8;
    bool operator==(const Eval &) const = default;
  } eval;

  struct Checkpoint {
    int64_t every = 100; ///< steps; 0: only at the end
    int64_t keep = 3;    ///< newest so many; 0: all
    bool operator==(const Checkpoint &) const = default;
  } checkpoint;

  /// What evaluations must reach, and what a run does otherwise.
  struct Gates {
    std::vector<std::string> require; ///< MetricGate.h; empty: no gates
    OnMiss onMiss = OnMiss::Stop;
    int64_t rollbacks = 3; ///< of RollBack; the next miss stops the run
    bool operator==(const Gates &) const = default;
  } gates;

  /// Learning from a teacher's most probable next tokens, which the dataset
  /// has.
  struct Distill {
    Divergence divergence = Divergence::Forward;
    double temperature = 1; ///< divides the logits of both
    double weight = 1;      ///< of the divergence; the rest is cross-entropy's
    int64_t top = 32;       ///< tokens of the teacher; the others are one class
    bool operator==(const Distill &) const = default;
  } distill;

  bool operator==(const Recipe &) const = default;
};

/// Reads a recipe, then applies `overrides` ("optimizer.lr=3e-4") in order and
/// checks the result. Errors: "FILE:LINE: key 'optimizer.lr': ..." or
/// "--set optimizer.lr=x: ...".
StatusOr<Recipe> parseRecipe(std::string_view text, const std::string &file,
                             std::span<const std::string> overrides = {});

/// parseRecipe of a file; an empty path means the defaults.
StatusOr<Recipe> loadRecipe(const std::string &path,
                            std::span<const std::string> overrides = {});

/// Applies one "key=value" without checking it against other keys.
Status applyOverride(Recipe &recipe, std::string_view assignment);

/// Rules between keys, such as warmup within total. parseRecipe has applied
/// them; callers that change a recipe afterwards must call this again.
Status checkTogether(const Recipe &recipe);

/// The rules of a batch, which checkTogether includes. Planners ask it of every
/// plan, so it is cheap.
Status checkBatch(const Recipe::Batch &batch);

/// Every key with its value as YAML; parseRecipe of it gives `recipe` again,
/// bit for bit.
std::string printRecipe(const Recipe &recipe);

} // namespace tessera::recipe
