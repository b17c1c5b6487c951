// What `tessera export` writes of a run that trained an adapter.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/recipe/Recipe.h"

#include <string>
#include <vector>

namespace tessera {

/// The factors of one weight in a checkpoint; null: none.
struct AdapterFactors {
  const SafetensorsEntry *in = nullptr;  ///< A [rank, in]
  const SafetensorsEntry *out = nullptr; ///< B [out, rank]
};

/// Of the weight called `weight` ("….q_proj.weight").
AdapterFactors adapterFactorsOf(const SafetensorsFile &file,
                                const std::string &weight);

/// The weight with its factors: W + scale × B A, rounded once. W is f32, [out,
/// in], or with `isTransposed` [in, out] (GPT-2's Conv1D).
StatusOr<std::vector<float>> mergedWeight(const SafetensorsFile &file,
                                          const SafetensorsEntry &weight,
                                          const AdapterFactors &factors,
                                          double scale, bool isTransposed);

/// The factors and a head of scores under the names of PEFT's
/// adapter_model.safetensors; `tensors` are those of the checkpoint.
std::vector<SafetensorsTensor>
adapterTensors(std::vector<SafetensorsTensor> tensors);

/// PEFT's adapter_config.json; `hasScore`: of a sequence classifier, whose head
/// is saved with the factors.
std::string adapterConfig(const recipe::Recipe::Adapter &adapter,
                          bool isTransposed, bool hasScore);

} // namespace tessera
