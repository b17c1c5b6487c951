#include "models/ScaledInputs.h"

#include <numeric>

namespace tessera::models {
namespace {

/// `count` consecutive numbers from `first`.
std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

class Layer {
public:
  Layer(const ModelSpec &spec, int64_t layer)
      : spec(spec), prefix(layerPrefix(spec, layer)) {}

  void addTo(std::vector<InputOfLinears> &all) const {
    const bool fused = spec.qkvLayout == QkvLayout::Fused,
               fusedMlp = spec.fusedGateUp;
    const int64_t query = spec.queryWidth(), values = spec.keyValueWidth(),
                  width = spec.intermediate;
    const std::string qkv = "self_attn.qkv_proj", both = "mlp.gate_up_proj";
    using Names = std::vector<std::string>;
    all.push_back(afterNorm(
        "input_layernorm", fused ? Names{qkv}
                                 : Names{"self_attn.q_proj", "self_attn.k_proj",
                                         "self_attn.v_proj"}));
    all.push_back(afterMatrix(fused ? qkv : "self_attn.v_proj", spec.qkvBias,
                              fused ? query + 2 * values : values,
                              "self_attn.o_proj"));
    const int64_t shared = spec.heads / spec.kvHeads;
    for (int64_t channel = 0; channel < query; ++channel)
      all.back().sources.push_back((fused ? query + values : 0) +
                                   channel / spec.headDim / shared *
                                       spec.headDim +
                                   channel % spec.headDim);
    all.push_back(afterNorm(std::string(moduleNames(spec).mlpNorm),
                            fusedMlp ? Names{both}
                                     : Names{"mlp.gate_proj", "mlp.up_proj"}));
    all.push_back(afterMatrix(fusedMlp ? both : "mlp.up_proj", spec.mlpBias,
                              fusedMlp ? 2 * width : width, "mlp.down_proj"));
    all.back().sources = range(fusedMlp ? width : 0, width);
  }

private:
  InputOfLinears afterNorm(const std::string &norm,
                           const std::vector<std::string> &readers) const {
    InputOfLinears input;
    input.measured = prefix + readers.front();
    for (const std::string &each : readers)
      input.readers.push_back(prefix + each + ".weight");
    input.before = {prefix + norm + ".weight"};
    if (spec.norm == NormKind::LayerNorm && spec.normBias)
      input.before.push_back(prefix + norm + ".bias");
    input.isNorm = true;
    input.elements = spec.hidden;
    input.sources = range(0, spec.hidden);
    return input;
  }

  InputOfLinears afterMatrix(const std::string &matrix, bool bias, int64_t rows,
                             const char *reader) const {
    InputOfLinears input;
    input.measured = prefix + reader;
    input.readers = {prefix + reader + ".weight"};
    input.before = {prefix + matrix + ".weight"};
    if (bias)
      input.before.push_back(prefix + matrix + ".bias");
    input.elements = rows;
    return input;
  }

  const ModelSpec &spec;
  const std::string prefix;
};

} // namespace

StatusOr<std::vector<InputOfLinears>> scaledInputs(const ModelSpec &spec) {
  const char *why = spec.family == Family::Gpt2
                        ? "keeps its matrices as [in, out]"
                    : spec.isEncoder() ? "is an encoder"
                    : spec.latent      ? "has latent attention"
                    : spec.stateSpace  ? "has recurrent layers"
                    : spec.moe         ? "has experts"
                    : !spec.gatedMlp   ? "has an MLP without a gate"
                    : !spec.residual.hasMlpNorm()
                        ? "has no norm before each attention and MLP"
                        : nullptr;
  if (why)
    return Status::error(
        "--calibrate: {} {}, which --calibrate does not support; omit it",
        name(spec.family), why);
  std::vector<InputOfLinears> all;
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    Layer(spec, layer).addTo(all);
  return all;
}

} // namespace tessera::models
