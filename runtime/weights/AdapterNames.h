// Names of tensors that training adds to a model: those of adapters (LoRA,
// DoRA), as in PEFT without its prefix, the scoring head, as in transformers,
// and the value head, as in TRL.
#pragma once
#include <string_view>

namespace tessera {

/// What follows a linear layer's path in the names of its factors, A [rank, in]
/// and B [out, rank]: "model.layers.0.self_attn.q_proj" + ".lora_A" +
/// ".weight".
inline constexpr std::string_view kAdapterIn = ".lora_A";
inline constexpr std::string_view kAdapterOut = ".lora_B";

/// What follows it in the names of its magnitudes [out], and of the norms of
/// the base's rows [out], which are constant and not in PEFT's files (DoRA).
inline constexpr std::string_view kMagnitude = ".lora_magnitude_vector";
inline constexpr std::string_view kWeightNorm = ".lora_weight_norm";

/// [1, hidden]: the weights of a reward model's score.
inline constexpr std::string_view kScoreHead = "score.weight";

/// The value head of PPO, a linear layer of one row: kValueHead.weight and
/// kValueHead.bias.
inline constexpr std::string_view kValueHead = "v_head.summary";

/// Whether a tensor is of the value head.
inline bool isValueHead(std::string_view name) {
  return name.starts_with(kValueHead) &&
         name.substr(kValueHead.size()).starts_with('.');
}

/// Whether a tensor is the magnitudes of a layer.
inline bool isMagnitude(std::string_view name) {
  return name.ends_with(kMagnitude);
}

/// Whether a tensor is the norms of a layer's rows.
inline bool isWeightNorm(std::string_view name) {
  return name.ends_with(kWeightNorm);
}

/// Whether a layer's matrix is [in, out] (GPT-2's Conv1D), and not [out, in].
/// No other family has such names.
inline bool isConv1d(std::string_view path) {
  return path.starts_with("transformer.h.");
}

/// Whether a tensor is a factor of an adapter.
inline bool isAdapterFactor(std::string_view name) {
  constexpr std::string_view suffix = ".weight";
  if (!name.ends_with(suffix))
    return false;
  name.remove_suffix(suffix.size());
  return name.ends_with(kAdapterIn) || name.ends_with(kAdapterOut);
}

/// Whether a tensor is one that PEFT has in an adapter's file.
inline bool isOfAdapter(std::string_view name) {
  return isAdapterFactor(name) || isMagnitude(name);
}

} // namespace tessera
