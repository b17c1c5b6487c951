// A transformer as plain data: a decoder of the GPT-2 and Llama families, dense
// or with experts, or an encoder of the BERT family. Holds exactly what changes
// the mathematics of the model.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/AdapterRecipe.h"

namespace tessera::models {

/// Which builder makes the graph. All but GPT-2 and BERT are members of the
/// Llama family that differ in data (window, biases, norms, residual stream,
/// rotary layout, fused matrices, experts), not in code.
enum class Family {
  Gpt2,
  Llama,
  Mistral,
  Qwen2,
  Qwen3,
  Mixtral,
  Qwen2Moe,
  Qwen3Moe,
  Dots1,
  DeepseekV2,
  DeepseekV3,
  Gemma,
  Gemma2,
  Gemma3,
  Phi3,
  SmolLm3,
  Granite,
  Olmo2,
  Olmo3,
  Olmoe,
  Glm,
  Glm4,
  Cohere,
  Cohere2,
  StarCoder2,
  StableLm,
  Ernie45,
  SeedOss,
  HunYuan,
  GptNeoX,
  GptOss,
  Mamba2,
  GraniteHybrid,
  Bert
};

enum class NormKind {
  LayerNorm, ///< (x - mean) / sqrt(var + eps) * weight + bias
  RmsNorm,   ///< x / sqrt(mean(x^2) + eps) * weight, or * (1 + weight)
};

/// RMS norms of queries and keys.
enum class QkNorm {
  None,
  Head,      ///< along a head, with one weight [head_dim] for all heads
  AfterRope, ///< the same, of rotated heads
  Width,     ///< along all heads, before they are split
};

/// How queries, keys and values are projected.
enum class QkvLayout {
  Apart,  ///< three matrices
  Fused,  ///< one matrix: all queries, all keys, all values
  ByHead, ///< one matrix: of each head a query, a key and a value
};

/// Multi-head latent attention (DeepSeek-V2, 2405.04434, section 2.1): keys and
/// values of all heads are projections of one vector per token, the latent,
/// besides a rotated part of the keys that all heads share. A head of a query
/// or key is its unrotated part, then its rotated one, headDim elements in all;
/// there are as many key heads as heads. Inference caches latents and the
/// rotated part.
struct LatentSpec {
  int64_t queryRank = 0; ///< of compressed queries; 0: not compressed
  int64_t rank = 0;      ///< elements of the latent
  int64_t unrotated = 0, rotated = 0; ///< elements of a head
  int64_t valueDim = 0;               ///< elements of a head's value
  /// Elements per token and layer of the cache.
  int64_t cacheWidth() const { return rank + rotated; }
  /// Elements of a head where keys and values are as wide as the wider of both.
  int64_t paddedHeadDim() const {
    return std::max(unrotated + rotated, valueDim);
  }
  bool operator==(const LatentSpec &) const = default;
};

/// How a layer adds attention and MLP to the residual stream x.
struct ResidualSpec {
  bool preNorms = true;   ///< norms on the inputs of attention and MLP
  bool postNorms = false; ///< norms on their outputs, before the addition
  /// x + attention(x) + MLP(x), by two norms of x or by one; otherwise the MLP
  /// reads the sum of x and attention.
  enum { Serial, Parallel, ParallelOneNorm } order = Serial;
  double scale = 1.0; ///< of attention and MLP
  /// Whether the MLP's input has a norm of its own.
  bool hasMlpNorm() const { return preNorms && order != ParallelOneNorm; }
  bool operator==(const ResidualSpec &) const = default;
};

enum class Activation {
  Gelu,      ///< x * Phi(x), by erf
  GeluTanh,  ///< the tanh form: gelu_new, gelu_pytorch_tanh, gelu_fast
  QuickGelu, ///< x * sigmoid(1.702 x)
  Silu,      ///< x * sigmoid(x)
  Relu,
};

enum class RopeType { Default, Linear, Dynamic, Yarn, LongRope, Llama3 };

/// Rotary position embedding over the head's first elements (of d rotated
/// elements, element i is paired with i + d / 2, unless pairs are interleaved).
/// Fields that a type does not use keep their defaults; models/Rope.h turns
/// this into frequencies.
struct RopeSpec {
  RopeType type = RopeType::Default;
  double theta = 10000.0;
  double factor = 1.0;             ///< linear, dynamic, yarn, longrope, llama3
  double alpha = 0.0;              ///< dynamic: of a fixed base; 0: none
  double lowFreqFactor = 1.0;      ///< llama3
  double highFreqFactor = 1.0;     ///< llama3
  int64_t originalMaxPosition = 0; ///< yarn, longrope, llama3; in tokens
  double betaFast = 32.0;          ///< yarn: rotations kept as trained
  double betaSlow = 1.0;           ///< yarn: rotations fully interpolated
  bool truncate = true; ///< yarn: correction range rounded to integers
  /// Scaling of cos and sin; absent: by the type's rule.
  std::optional<double> attentionFactor; ///< yarn, longrope
  std::optional<double> mscale;          ///< yarn
  std::optional<double> mscaleAllDim;    ///< yarn
  std::vector<double> shortFactor;       ///< longrope: [pairs]
  std::vector<double> longFactor;        ///< longrope: [pairs]
  bool operator==(const RopeSpec &) const = default;
};

/// How a router's logits become scores.
enum class RouterScore {
  Softmax, ///< over all experts
  Sigmoid, ///< each expert by itself (DeepSeek-V3, 2412.19437, section 2.1.2)
};

/// Experts in place of the MLP of some layers. With p the scores of all
/// experts, a token goes to the `chosen` experts of the greatest p; its result
/// is the sum of their outputs times p, times `scale`.
struct MoeSpec {
  int64_t experts = 0;
  int64_t chosen = 0;             ///< experts of a token, in [1, experts]
  int64_t intermediate = 0;       ///< width of an expert
  int64_t sharedIntermediate = 0; ///< of the shared expert; 0: none
  bool sharedGate = false;        ///< its output × sigmoid(gate x)
  RouterScore score = RouterScore::Softmax;
  bool normalize = false; ///< p of the chosen over their sum
  double scale = 1.0;
  bool routerBias = false; ///< of the logits
  /// Gate and up are one stack [experts, in, 2 out], columns interleaved,
  /// down is [experts, in, out], and all have biases; otherwise each matrix is
  /// a stack [experts, out, in] without.
  bool fused = false;
  /// Gate and up are one stack [experts, 2 out, in] without biases, and one
  /// matrix in the shared expert: gate, up.
  bool fusedGateUp = false;
  /// With l: down(act(min(gate, l)) * (1 + clip(up, -l, l))).
  std::optional<double> swigluLimit;
  /// Experts are chosen from the `chosenGroups` best of `groups` groups of
  /// neighbours; a group's score is the sum of its `groupBest` best ones: two
  /// (section 2.1.2) or one (2405.04434, section 2.2.2).
  int64_t groups = 1, chosenGroups = 1, groupBest = 2;
  /// Experts are chosen by p + bias, a parameter that is updated from the
  /// experts' loads, not by a gradient (2408.15664).
  bool selectionBias = false;
  /// [layers]: whether the layer has experts, or an MLP.
  std::vector<bool> sparse;
  int64_t sparseLayers() const;
  bool operator==(const MoeSpec &) const = default;
};

/// Mixers of Mamba-2 (2405.21060, section 7) in place of attention in some
/// layers. The input projection gives gates [width], then what is convolved
/// [channels]: values [width], writes and reads [groups, state] each; and steps
/// [heads].
struct StateSpaceSpec {
  int64_t heads = 0, headDim = 0;
  int64_t state = 0;  ///< elements of a head's state for each of its own
  int64_t groups = 1; ///< of heads with common writes and reads, and of norms
  int64_t kernel = 4; ///< tokens of the convolution
  bool bias = false;  ///< of both projections
  bool convBias = true;
  double leastStep = 0;
  std::optional<double> mostStep;
  /// The initial steps without input are between these; absent: biases of 1,
  /// and other matrices as those of attention.
  std::optional<std::pair<double, double>> initialSteps;
  /// Initial output projections are divided by the root of the layers.
  bool rescaled = false;
  /// [layers]: whether the layer has such a mixer, or attention.
  std::vector<bool> recurrent;
  int64_t width() const { return heads * headDim; }
  int64_t channels() const { return width() + 2 * groups * state; }
  int64_t projected() const { return width() + channels() + heads; }
  int64_t recurrentLayers() const;
  bool operator==(const StateSpaceSpec &) const = default;
};

/// What a layer consists of; layers of the same parts have parameters of the
/// same names and shapes.
struct LayerParts {
  bool sparse = false;    ///< experts instead of an MLP
  bool recurrent = false; ///< a mixer instead of attention
  bool operator==(const LayerParts &) const = default;
};

/// Low-rank factors that are trained instead of the model's weights: a linear
/// layer W gives W x + scale B (A x). With magnitudes m, one for each row, the
/// sum is multiplied by m / |W + scale B A|, the norms of rows. Names:
/// runtime/weights/AdapterNames.h. Inference programs hold the factors of
/// several adapters instead, `slots`: A [slots, rank, in], and B as the scaled
/// transpose, [slots, rank, out]; of magnitudes what the multiple differs from
/// 1 by, [slots, 1, out].
struct AdapterSpec {
  recipe::AdapterRecipe recipe;
  bool hasNarrowBase = false; ///< constant matrices are stored as bf16
  int64_t slots() const { return recipe.slots; } ///< 0: factors to train
  bool hasMagnitudes() const {
    return recipe.kind == recipe::AdapterKind::Dora;
  }
  /// Whether the linear layer at `path` has factors.
  bool adapts(std::string_view path) const;
  bool operator==(const AdapterSpec &) const = default;
};

/// A validated model. The reader (models/HfConfig.h) guarantees that sizes are
/// positive, heads is a multiple of kvHeads, headDim is even if rope is used,
/// and the parameter count fits 63 bits.
struct ModelSpec {
  Family family = Family::Gpt2;
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kvHeads = 0;      ///< = heads: MHA; 1: MQA; between: GQA
  int64_t headDim = 0;      ///< heads * headDim need not equal hidden
  int64_t intermediate = 0; ///< width of the MLP; 0: none
  int64_t maxPositions = 0; ///< tokens; learned positions: rows of the table
  int64_t tokenTypes = 0;   ///< BERT: rows of the table of token types

  NormKind norm = NormKind::LayerNorm;
  double normEps = 1e-5;
  bool normPlusOne = false; ///< norms multiply by 1 + weight
  bool normBias = true;     ///< of a LayerNorm
  ResidualSpec residual;
  double embeddingScale = 1.0; ///< of a token's row of the table
  double logitScale = 1.0;
  Activation activation = Activation::GeluTanh;
  bool gatedMlp = false; ///< down(act(gate(x)) * up(x)), or down(act(up(x)))
  bool tieWordEmbeddings = true;
  bool qkvBias = false;
  bool outputBias = false; ///< of the attention's output projection
  bool mlpBias = false;
  QkNorm qkNorm = QkNorm::None;
  QkvLayout qkvLayout = QkvLayout::Apart;
  bool fusedGateUp = false; ///< one matrix: gate, up

  /// Widths to which an encoder's embeddings may be truncated (Kusupati et al.,
  /// Matryoshka, 2022): these, or any if `cutsAnywhere`.
  std::vector<int64_t> vectorCuts;
  bool cutsAnywhere = false;

  /// Whether attention is bidirectional and the output is an embedding. A
  /// decoder's attention is causal.
  bool isEncoder() const { return family == Family::Bert; }
  /// A reward model: a decoder whose last token has a score instead of logits
  /// (the reference's ForSequenceClassification with one label).
  bool hasScore = false;
  /// A value head in addition to the logits, as PPO trains it. Only of
  /// training.
  bool hasValue = false;
  bool generates() const { return !isEncoder() && !hasScore; }

  std::optional<AdapterSpec> adapter;
  std::optional<MoeSpec> moe;
  std::optional<LatentSpec> latent;
  std::optional<StateSpaceSpec> stateSpace;
  /// Whether `layer` has a mixer instead of attention.
  bool isRecurrent(int64_t layer) const {
    return stateSpace && stateSpace->recurrent[static_cast<size_t>(layer)];
  }
  bool hasMlp() const { return intermediate > 0; }
  LayerParts partsOf(int64_t layer) const {
    return {isSparse(layer), isRecurrent(layer)};
  }
  /// The parts of all layers, each once.
  std::vector<LayerParts> kindsOfLayers() const;
  /// Whether `layer` has experts.
  bool isSparse(int64_t layer) const {
    return moe && moe->sparse[static_cast<size_t>(layer)];
  }

  /// Absent: positions are a learned table (GPT-2, BERT), or none.
  std::optional<RopeSpec> rope;
  /// The rope of layers with a window, if it differs.
  std::optional<RopeSpec> localRope;
  /// Rotated elements of a head, an even number; 0: all.
  int64_t rotaryDim = 0;
  bool interleavedRope = false; ///< element 2 i is paired with 2 i + 1
  /// [layers], or empty when rope rotates in every layer.
  std::vector<bool> unrotated;
  /// [layers], or empty when every layer sees the whole past. Entry w > 0: a
  /// query at position q sees keys k with q - w < k <= q; 0: all k <= q.
  std::vector<int64_t> windows;

  bool scaleAttention = true; ///< scores / sqrt(head_dim)
  /// Replaces head_dim in that formula.
  std::optional<double> queryScalar;
  bool scaleAttentionByInverseLayer = false; ///< scores / (layer + 1) too

  /// Each head has a logit, a parameter, that the softmax of attention counts
  /// as if it were that of one more key, whose value is zero.
  bool attentionSinks = false;

  /// A scaled score, or a logit, x is cap * tanh(x / cap).
  std::optional<double> scoreCap, logitCap;

  double embeddingDropout = 0.0;
  double attentionDropout = 0.0; ///< on the attention probabilities
  double residualDropout = 0.0;  ///< on outputs of sub-layers
  double initializerRange = 0.02;

  /// Hints that do not change the mathematics.
  std::vector<int64_t> eosTokens;
  std::optional<int64_t> bosToken;
  std::optional<int64_t> padToken;
  std::string checkpointDtype; ///< "float32", "bfloat16", "float16" or empty

  /// The window of `layer` in tokens; 0: none.
  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  /// The factor of attention scores of `layer`.
  double attentionScale(int64_t layer) const;
  /// Number of rotated elements of a head.
  int64_t rotaryWidth() const { return rotaryDim ? rotaryDim : headDim; }
  /// Whether queries and keys of `layer` are rotated.
  bool rotates(int64_t layer) const {
    return rope && (unrotated.empty() || !unrotated[size_t(layer)]);
  }
  /// The rotary frequencies of `layer`; requires rope.
  const RopeSpec &ropeOf(int64_t layer) const {
    return localRope && window(layer) > 0 ? *localRope : *rope;
  }
  int64_t queryWidth() const { return heads * headDim; }
  /// Of attention's output.
  int64_t outputWidth() const {
    return heads * (latent ? latent->valueDim : headDim);
  }
  int64_t keyValueWidth() const { return kvHeads * headDim; }

  bool operator==(const ModelSpec &) const = default;
};

/// How a parameter is initialized.
enum class Initializer {
  Normal,
  Ones,
  Zeros,
  Uniform,    ///< between -deviation and deviation
  LogOfIndex, ///< log(1), log(2), …
  StepBias,   ///< log(exp(d) - 1), log d uniform between those of two limits
};

/// One tensor of the checkpoint, in the checkpoint's own name and shape.
struct Parameter {
  /// The name that the reference's class saves. A name with '*' is a stack: the
  /// checkpoint has one tensor for each entry of the first dimension, with its
  /// number instead of '*' (runtime/weights/StateParts.h).
  std::string name;
  /// GPT-2 projections are Conv1D: [in, out]; all others [out, in].
  std::vector<int64_t> shape;
  Initializer initializer = Initializer::Normal;
  double deviation = 0.0;                ///< standard deviation when Normal
  std::pair<double, double> limits = {}; ///< of StepBias
  int64_t layer = -1;                    ///< -1: outside the layers
  bool frozen = false;   ///< no gradient; has its own update, or none:
  bool constant = false; ///< also frozen
  bool keepF32 = false;  ///< of routers and scores: in f32, like its matmul
  bool isNarrow = false; ///< stored as bf16, and read as f32; constant
  int64_t elements() const;
  bool operator==(const Parameter &) const = default;
};

/// Every tensor in checkpoint order; a tied head is not repeated.
/// Initial deviations follow the reference implementations: initializerRange,
/// and for GPT-2's residual projections initializerRange / sqrt(2 layers).
std::vector<Parameter> parameters(const ModelSpec &spec);

/// The tensors of one layer, without its prefix ("attn.c_attn.weight").
std::vector<Parameter> layerParameters(const ModelSpec &spec, LayerParts parts);

/// Names of the tensors of a layer with experts, without the last part:
/// ".weight" for the router, the names of the matrices for the experts. Of
/// fused experts `up` is both, and names of biases end in "_bias".
struct ExpertNames {
  std::string_view router;         ///< "mlp.gate"
  std::string_view experts;        ///< "mlp.experts.*"
  std::string_view shared;         ///< "mlp.shared_expert"
  std::string_view gate, up, down; ///< "gate_proj", …
};
ExpertNames expertNames(const ModelSpec &spec);

/// Names of modules in checkpoints; those inside a layer without its prefix.
/// Names of modules that a model does not have are unused.
struct ModuleNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view layers = "model.layers";
  std::string_view norm = "model.norm", head = "lm_head";
  std::string_view query = "self_attn.q_proj", key = "self_attn.k_proj",
                   value = "self_attn.v_proj", qkv = "self_attn.qkv_proj",
                   output = "self_attn.o_proj", sinks = "self_attn.sinks";
  // Of latent attention: hidden → queryRank → heads' queries; hidden →
  // cacheWidth(), and rank → heads' keys and values.
  std::string_view queryDown = "self_attn.q_a_proj",
                   queryDownNorm = "self_attn.q_a_layernorm",
                   queryUp = "self_attn.q_b_proj",
                   latent = "self_attn.kv_a_proj_with_mqa",
                   latentNorm = "self_attn.kv_a_layernorm",
                   latentUp = "self_attn.kv_b_proj";
  std::string_view queryNorm = "self_attn.q_norm", keyNorm = "self_attn.k_norm";
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj",
                   gateUp = "mlp.gate_up_proj", down = "mlp.down_proj";
  /// Of recurrent layers; inside the mixer.
  std::string_view mixer = "mixer";
  /// Norms of the inputs and of the outputs of attention and MLP.
  std::string_view attentionNorm = "input_layernorm",
                   mlpNorm = "post_attention_layernorm",
                   attentionPostNorm = "post_attention_layernorm",
                   mlpPostNorm = "post_feedforward_layernorm";
};
ModuleNames moduleNames(const ModelSpec &spec);

/// "transformer.h.3.", "model.layers.3." or "encoder.layer.3.".
std::string layerPrefix(const ModelSpec &spec, int64_t layer);

/// The names that a checkpoint may use for `name`, itself first. Early GPT-2
/// checkpoints lack "transformer."; BERT checkpoints with heads (masked words,
/// sentence pairs) prepend "bert.".
std::vector<std::string> checkpointNames(const ModelSpec &spec,
                                         std::string_view name);

/// Number of values of all parameters.
int64_t parameterCount(const ModelSpec &spec);
/// The number of values that a token uses: of the experts only the chosen ones.
int64_t activeParameterCount(const ModelSpec &spec);

/// The config's own words: "gpt2", "gelu_new", "llama3".
std::string_view name(Family family);
std::string_view name(Activation activation);
std::string_view name(RopeType type);

/// One line for messages: family, sizes, parameter count.
std::string describe(const ModelSpec &spec);

} // namespace tessera::models
