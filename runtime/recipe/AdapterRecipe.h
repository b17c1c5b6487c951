// The adapter section of a recipe: which low-rank factors are trained, and what
// of the model with them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::recipe {

/// Lora: the model's weights are constant, and low-rank factors of chosen
/// matrices are trained (Hu et al. 2021, LoRA). Dora: and magnitudes of their
/// rows (Liu et al. 2024, arXiv 2402.09353).
enum class AdapterKind { None, Lora, Dora };
/// The type in which an adapter's base model is stored. Auto: quantized as its
/// checkpoint is; else bf16 if that is what it is computed in and what its
/// config.json says. Int8, Int4, Fp8: as inference.quant quantizes, with its
/// group and zero points.
enum class AdapterBase { Auto, Fp32, Bf16, Nf4, Int8, Int4, Fp8 };
/// What alpha is divided by. Root: by the root of the rank (Kalajdzievski 2023,
/// rsLoRA, arXiv 2312.03732).
enum class AdapterScaling { Rank, Root };

struct AdapterRecipe {
  static constexpr int64_t kMostRank = 1 << 16;

  AdapterKind kind = AdapterKind::None;
  int64_t rank = 16;
  double alpha = 32; ///< the product of the factors is scaled by alpha / rank
  AdapterScaling scaling = AdapterScaling::Rank;
  AdapterBase base = AdapterBase::Auto;
  /// Linear layers by the last parts of their names, "q_proj" or
  /// "self_attn.q_proj"; of slots, "all" is all of them.
  std::vector<std::string> target = {"q_proj", "v_proj"};
  /// Other ranks than `rank`: "down_proj=8". The first that fits a layer holds.
  std::vector<std::string> ranks;
  /// At which elements of what factors multiply are dropped in training.
  double dropout = 0;
  /// Modules that are trained whole, by the last parts of their names:
  /// "lm_head".
  std::vector<std::string> modulesToSave;
  /// Adapters, of up to `rank`, that inference programs hold at once; only
  /// for them, and 0 in training.
  int64_t slots = 0;
  bool operator==(const AdapterRecipe &) const = default;

  // Of the linear layer at `path`, "model.layers.0.self_attn.q_proj".
  int64_t rankOf(std::string_view path) const;
  double scaleOf(std::string_view path) const;
  /// Whether a parameter, "lm_head.weight", is of a module that is trained
  /// whole.
  bool saves(std::string_view parameter) const;
};

std::string_view name(AdapterBase base);
/// Whether a base's matrices are codes with scales.
bool isQuantized(AdapterBase base);

/// Whether `path` is `name`, or ends with it after a dot.
bool endsWithName(std::string_view path, std::string_view name);

/// An entry of `ranks` as its parts; a rank of 0 if it has no such form.
std::pair<std::string_view, int64_t> rankEntry(std::string_view entry);

} // namespace tessera::recipe
