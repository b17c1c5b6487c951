// What `tessera export` writes of a run that trained an adapter.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/recipe/Recipe.h"
#include "runtime/support/QuantizedLayout.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The factors of one weight in a checkpoint, and its magnitudes; null: none.
struct AdapterFactors {
  const SafetensorsEntry *in = nullptr;        ///< A [rank, in]
  const SafetensorsEntry *out = nullptr;       ///< B [out, rank]
  const SafetensorsEntry *magnitude = nullptr; ///< [out]
};

/// Of the weight called `weight` ("….q_proj.weight").
AdapterFactors adapterFactorsOf(const SafetensorsFile &file,
                                const std::string &weight);

/// A weight of the base, [out, in], or with `isTransposed` [in, out] (GPT-2's
/// Conv1D): one tensor, or two of a quantized base, which has it dequantized.
struct BaseWeight {
  std::string name;
  std::vector<uint64_t> shape;
  const SafetensorsEntry *values;           ///< the tensor, or words of codes
  const SafetensorsEntry *scales = nullptr; ///< of a quantized base
  QuantizedLayout layout = {};              ///< of those two
};

/// Null if the checkpoint has no such weight. `layout` is that of a quantized
/// base but for rows and columns (recipe::baseLayout); null if the run has
/// none.
std::optional<BaseWeight>
baseWeightOf(const SafetensorsFile &file, const std::string &name,
             bool isTransposed, const std::optional<QuantizedLayout> &layout);

/// The name of the weight that `entry` holds the codes of; empty if it holds
/// none.
std::string quantizedWeight(const SafetensorsEntry &entry);
/// Whether `entry` holds codes or scales of a quantized base.
bool isQuantizedPart(const SafetensorsFile &file,
                     const SafetensorsEntry &entry);

/// In f32.
StatusOr<std::vector<float>> readWeight(const SafetensorsFile &file,
                                        const BaseWeight &weight,
                                        bool isTransposed);

/// The weight with its factors: W + scale × B A, with rows of the norms that
/// its magnitudes are, rounded once.
StatusOr<std::vector<float>> mergedWeight(const SafetensorsFile &file,
                                          const BaseWeight &weight,
                                          const AdapterFactors &factors,
                                          double scale, bool isTransposed);

/// A head that is the table of embeddings is a module of its own to PEFT: where
/// the table was trained, it is saved, too. `tensors` are the checkpoint's.
recipe::Recipe::Adapter
withTiedHead(recipe::Recipe::Adapter adapter,
             const std::vector<SafetensorsTensor> &tensors);

/// What was trained: factors, magnitudes, modules as a whole and a scoring
/// head, under the names of PEFT's adapter_model.safetensors; `tensors` are
/// those of the checkpoint.
std::vector<SafetensorsTensor>
adapterTensors(std::vector<SafetensorsTensor> tensors,
               const recipe::Recipe::Adapter &adapter);

/// PEFT's adapter_config.json; `hasScore`: of a sequence classifier, whose head
/// is saved with the factors.
std::string adapterConfig(const recipe::Recipe::Adapter &adapter,
                          bool isTransposed, bool hasScore);

} // namespace tessera
