// Private parts of the config.json reader.
#pragma once
#include <array>
#include <span>

#include "models/ConfigFields.h"
#include "models/HfConfig.h"
#include "models/ModelSpec.h"

namespace tessera::models {

// Bounds larger than any model of these families. They keep products of sizes
// within 63 bits.
constexpr int64_t maxVocab = int64_t(1) << 24;
constexpr int64_t maxWidth = int64_t(1) << 20;
constexpr int64_t maxHeads = int64_t(1) << 14;
constexpr int64_t maxLayers = int64_t(1) << 12;
constexpr int64_t maxIntermediate = int64_t(1) << 22;
constexpr int64_t maxExperts = int64_t(1) << 14;
constexpr int64_t maxExpertWidth = int64_t(1) << 26; ///< of all experts
constexpr int64_t maxPositionCount = int64_t(1) << 27;

/// Where the members of the Llama family differ. Sources: the configuration
/// and modeling files of each in transformers. Defaults are those of most.
struct LlamaTraits {
  int64_t maxPositions = 0;
  bool kvHeadsDefault = false; ///< absent kv heads default to heads
  int64_t headDimDefault = 0;  ///< 0: hidden / heads
  bool qkvBias = false;        ///< always, without a key
  /// OfAttention: attention_bias gives q, k, v and o a bias; OfQkv: only q, k
  /// and v; UseBias: use_bias gives all linear layers a bias.
  enum { NoBiasKey, OfAttention, OfQkv, UseBias } biasKey = NoBiasKey;
  bool biasDefault = false;
  bool mlpBiasKey = false; ///< mlp_bias gives the MLP its biases
  QkNorm qkNorm = QkNorm::None;
  /// UpperLayers: those from max_window_layers on, if use_sliding_window is
  /// set; LastLayers: always those. Off: there is a sliding_window, and
  /// use_sliding_window must be false, since versions of the reference disagree
  /// about which layers slide. EvenLayers: the first one, the third and so on;
  /// Pattern: all but every n-th, unless a key says otherwise. UnrotatedLayers:
  /// those that rope does not rotate, if use_sliding_window is set.
  enum {
    NoWindow,
    EveryLayer,
    UpperLayers,
    LastLayers,
    Off,
    EvenLayers,
    Pattern,
    UnrotatedLayers
  } window = NoWindow;
  bool experts = false;
  double normEps = 1e-6;
  double ropeTheta = RopeSpec().theta;
  /// Default of sliding_window; 0: none.
  int64_t windowDefault = 4096;
  int64_t pattern = 6; ///< n of Pattern, by default
  NormKind norm = NormKind::RmsNorm;
  const char *normEpsKey = "rms_norm_eps";
  /// Null: `own` reads it.
  const char *activation = "silu";
  bool tied = false;
  /// Default of partial_rotary_factor; 0: the key is refused.
  double rotaryShare = 0;
  /// Other names of partial_rotary_factor and rope_theta outside a section.
  const char *shareName = "", *thetaName = "";
  double attentionDropout = 0;
  /// Whether layers with a window have a rope of their own: with a base of its
  /// own, or the other layers' rope without its scaling.
  enum { OneRope, LocalBase, LocalUnscaled } ropes = OneRope;
  bool rotatesOnlyWindows = false;
  /// Latent attention, with sizes of heads of its own.
  bool latent = false;
  /// Models published before the reference supported the architecture name
  /// their own code; the reference now ignores it.
  bool ignoresAutoMap = false;
  /// Keys and facts of this member alone; requires spec.headDim.
  void (*own)(ConfigFields &fields, ModelSpec &spec) = nullptr;
};

struct FamilyInfo {
  Family family;
  std::array<std::string_view, 3> architectures;
  LlamaTraits llama = {}; ///< unused for GPT-2 and BERT
};

/// One row for each family (HfFamilyTable.cpp).
std::span<const FamilyInfo> families();

/// quantization_config, if there is one, into `config`, whose spec is known;
/// errors go to `fields`.
void readStoredWeights(ConfigFields &fields, LoadedConfig &config);

/// Whether modules that are left out of quantization (names, or patterns of
/// names) are only heads, what expands latents and, for models with
/// experts, routers.
bool leavesOutNoMatrix(const std::vector<std::string> &modules,
                       bool hasExperts);

/// The one group of settings that compressed-tensors' config_groups may have;
/// null with an error for others.
const Json *onlyGroup(ConfigFields &fields);

/// Reads the rest of a quantization_config of 8-bit floats; the tensors are
/// read as bf16 (runtime/data/Float8Weights.h). `format` is its quant_method,
/// fp8 or fbgemm_fp8, or compressed-tensors' format, float-quantized. Returns
/// false, without reading, for others. `floats` is set if all linear layers are
/// e4m3 in groups that it can have.
bool readFloat8(ConfigFields &fields, std::string_view format, bool hasExperts,
                std::optional<StoredFloats> &floats);

/// Reads a member of the Llama family into `spec`; errors go to `fields`.
void readLlama(ConfigFields &fields, const LlamaTraits &traits,
               ModelSpec &spec);

// Keys and facts of single members (HfFamilies.cpp).
void readGemma(ConfigFields &fields, ModelSpec &spec);
void readPhi3(ConfigFields &fields, ModelSpec &spec);
void readSmolLm3(ConfigFields &fields, ModelSpec &spec);
void readGranite(ConfigFields &fields, ModelSpec &spec);
void readOlmo(ConfigFields &fields, ModelSpec &spec);
void readOlmoe(ConfigFields &fields, ModelSpec &spec);
void readGlm(ConfigFields &fields, ModelSpec &spec);
void readCohere(ConfigFields &fields, ModelSpec &spec);
void readStarCoder2(ConfigFields &fields, ModelSpec &spec);
void readStableLm(ConfigFields &fields, ModelSpec &spec);
void readErnie(ConfigFields &fields, ModelSpec &spec);
void readSeedOss(ConfigFields &fields, ModelSpec &spec);
void readHunYuan(ConfigFields &fields, ModelSpec &spec);
void readGptNeoX(ConfigFields &fields, ModelSpec &spec);
void readGptOss(ConfigFields &fields, ModelSpec &spec);
void readGraniteHybrid(ConfigFields &fields, ModelSpec &spec);

/// Reads the heads of latent attention into spec.latent; requires spec.heads.
void readLatentHeads(ConfigFields &fields, ModelSpec &spec);
/// Folds YaRN's mscale_all_dim into the scale of scores; requires spec.rope.
void scaleLatentScores(ModelSpec &spec);

/// Reads a model of Mamba-2 mixers alone into `spec`.
void readMamba2(ConfigFields &fields, ModelSpec &spec);

/// Reads an encoder of the BERT family into `spec`; errors go to `fields`.
void readBert(ConfigFields &fields, ModelSpec &spec);

/// Reads the experts of a family that has them into spec.moe; requires the
/// sizes of `spec`. None if all layers are listed as dense.
void readMoe(ConfigFields &fields, ModelSpec &spec);

/// Reads v5's `rope_parameters` or v4's `rope_theta` + `rope_scaling`; requires
/// spec.headDim and spec.maxPositions.
RopeSpec readRope(ConfigFields &fields, const LlamaTraits &traits,
                  const ModelSpec &spec);

/// The same for a family whose layers with a window have a separate rope: fills
/// spec.rope and spec.localRope. Requires spec.windows.
void readLayerRopes(ConfigFields &fields, const LlamaTraits &traits,
                    ModelSpec &spec);

/// Reads the share of a head that is rotated into spec.rotaryDim; requires
/// spec.headDim.
void readRotaryShare(ConfigFields &fields, const LlamaTraits &traits,
                     ModelSpec &spec);

/// An activation by the reference's name for it.
Activation readActivation(ConfigFields &fields, Key key, const char *absent);

/// A probability in [0, 1).
double readDropout(ConfigFields &fields, Key key, double absent);

} // namespace tessera::models
