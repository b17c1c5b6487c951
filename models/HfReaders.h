// Private parts of the config.json reader.
#pragma once
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
/// and modeling files of each in transformers.
struct LlamaTraits {
  int64_t maxPositions;
  bool kvHeadsDefault;    ///< absent kv heads default to heads
  int64_t headDimDefault; ///< 0: hidden / heads
  bool qkvBias;           ///< always, without a key
  bool attentionBiasKey;  ///< attention_bias gives q, k, v and o a bias
  bool mlpBiasKey;
  bool qkNorm;
  /// UpperLayers: those from max_window_layers on, if use_sliding_window is
  /// set; LastLayers: always those. Off: there is a sliding_window, and
  /// use_sliding_window must be false, since versions of the reference disagree
  /// about which layers slide. EvenLayers: the first one, the third and so on;
  /// Pattern: all but every n-th, 6th unless a key says otherwise.
  enum {
    NoWindow,
    EveryLayer,
    UpperLayers,
    LastLayers,
    Off,
    EvenLayers,
    Pattern
  } window;
  bool experts = false;
  double normEps = 1e-6;
  double ropeTheta = RopeSpec().theta;
  /// Default of sliding_window; 0: none.
  int64_t windowDefault = 4096;
  /// Gemma: activation, norms, scales and caps of its own; Phi3: fused matrices
  /// and partial rotary heads.
  enum { Plain, Gemma, Phi3 } kin = Plain;
};

/// quantization_config, if there is one; errors go to `fields`.
std::optional<StoredWeights> readStoredWeights(ConfigFields &fields,
                                               const ModelSpec &spec);

/// The one group of settings that compressed-tensors' config_groups may have;
/// null with an error for others.
const Json *onlyGroup(ConfigFields &fields);

/// Reads the rest of a quantization_config of 8-bit floats; the tensors are
/// read as bf16 (runtime/data/Float8Weights.h). `format` is its quant_method,
/// fp8 or fbgemm_fp8, or compressed-tensors' format, float-quantized. Returns
/// false, without reading, for others.
bool readFloat8(ConfigFields &fields, std::string_view format);

/// Reads a member of the Llama family into `spec`; errors go to `fields`.
void readLlama(ConfigFields &fields, const LlamaTraits &traits,
               ModelSpec &spec);

/// Keys of the Gemma family.
void readGemma(ConfigFields &fields, ModelSpec &spec);
/// Keys of Phi-3; requires spec.headDim.
void readPhi3(ConfigFields &fields, ModelSpec &spec);

/// Reads an encoder of the BERT family into `spec`; errors go to `fields`.
void readBert(ConfigFields &fields, ModelSpec &spec);

/// Reads the experts of a family that has them into spec.moe; requires the
/// sizes of `spec`. None if all layers are listed as dense.
void readMoe(ConfigFields &fields, ModelSpec &spec);

/// Reads v5's `rope_parameters` or v4's `rope_theta` + `rope_scaling`; requires
/// spec.headDim and spec.maxPositions. `theta`: default if no key gives it.
RopeSpec readRope(ConfigFields &fields, const ModelSpec &spec, double theta);

/// The same for Gemma 3, whose layers with a window have a separate rope: fills
/// spec.rope and spec.localRope. Requires spec.windows.
void readLayerRopes(ConfigFields &fields, double theta, ModelSpec &spec);

/// An activation by the reference's name for it.
Activation readActivation(ConfigFields &fields, Key key, const char *absent);

/// A probability in [0, 1).
double readDropout(ConfigFields &fields, Key key, double absent);

} // namespace tessera::models
