// LoRA and DoRA adapters in PEFT's layout: adapter_config.json and
// adapter_model.safetensors, as PEFT and `tessera export` write them.
#pragma once
#include "runtime/recipe/AdapterRecipe.h"
#include "runtime/weights/ModelState.h"

#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// The factors of one linear layer, W x + scale × B (A x); with magnitudes,
/// each row of it × magnitude / |W + scale × B A|.
struct AdapterModule {
  std::string path;            ///< "model.layers.0.self_attn.q_proj"
  const SafetensorsEntry *in;  ///< A [rank, in]
  const SafetensorsEntry *out; ///< B [out, rank]
  const SafetensorsEntry *magnitude = nullptr; ///< [out]; null: none
  int64_t rank() const { return int64_t(in->shape[0]); }
};

/// An adapter whose factors are not read yet.
struct AdapterFile {
  /// Errors name what the directory lacks, and settings of its configuration
  /// that change the mathematics and are not supported.
  static StatusOr<AdapterFile> open(const std::string &directory);

  /// Of tensors in memory, whose entries have sources; `title` names it in
  /// errors.
  static StatusOr<AdapterFile> of(const std::string &title,
                                  const recipe::AdapterRecipe &recipe,
                                  std::vector<SafetensorsEntry> tensors);

  std::string directory;
  std::optional<SafetensorsFile> file = {};
  std::vector<SafetensorsEntry> inMemory = {}; ///< without a file
  std::vector<AdapterModule> modules = {};     ///< by their paths
  double alpha = 1;
  /// Other values of it (PEFT's alpha_pattern): of paths that are the name or
  /// end with it after a dot; the first that fits holds.
  std::vector<std::pair<std::string, double>> alphas = {};
  /// As its configuration says, which the shapes of factors must equal: r (0:
  /// not said), and of some paths another one (rank_pattern).
  int64_t statedRank = 0;
  std::vector<std::pair<std::string, double>> ranks = {};
  bool byRoot = false;        ///< rsLoRA: scale is alpha / sqrt(rank)
  bool hasMagnitudes = false; ///< DoRA: all modules have
  double scale(const AdapterModule &module) const;
  /// The numbers of one of the modules' tensors.
  StatusOr<std::vector<float>> read(const SafetensorsEntry &entry) const;
  int64_t rank() const;                     ///< the largest of a module
  std::vector<std::string> targets() const; ///< last parts of the paths
};

/// An adapter as the factors of one slot, in the model's types.
struct AdapterValues {
  struct Factor {
    const StateTensor *tensor; ///< of the model's state: A or B of all slots
    std::vector<std::byte> bytes;
  };
  std::vector<Factor> factors; ///< of all tensors that slots have
};

/// Slots for adapters in a model that was compiled for inference.
int64_t adapterSlots(const ModelState &model);

/// Reads the factors, pads their ranks with zeros and multiplies B by the
/// scale, in fp32. Layers that the adapter leaves as they are get zeros. With
/// magnitudes the model's matrices are read as well, for the norms of their
/// rows. Changes nothing in the model; may be called while it runs.
StatusOr<AdapterValues> readAdapter(const AdapterFile &adapter,
                                    ModelState &model);

/// Fills one slot; not while the model runs.
Status writeAdapter(const AdapterValues &values, ModelState &model,
                    int64_t slot);

} // namespace tessera
