// Names of tensors that training adds to a model: those of adapters (LoRA), as
// in PEFT without its prefix, the head of scores, as in transformers, and the
// value head, as in TRL.
#pragma once
#include <string_view>

namespace tessera {

/// What follows a linear layer's path in the names of its factors, A [rank, in]
/// and B [out, rank]: "model.layers.0.self_attn.q_proj" + ".lora_A" +
/// ".weight".
inline constexpr std::string_view kAdapterIn = ".lora_A";
inline constexpr std::string_view kAdapterOut = ".lora_B";

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

/// Whether a tensor is a factor of an adapter.
inline bool isAdapterFactor(std::string_view name) {
  constexpr std::string_view suffix = ".weight";
  if (!name.ends_with(suffix))
    return false;
  name.remove_suffix(suffix.size());
  return name.ends_with(kAdapterIn) || name.ends_with(kAdapterOut);
}

} // namespace tessera
