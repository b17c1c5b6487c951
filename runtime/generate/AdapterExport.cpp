#include "runtime/generate/AdapterExport.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/MergeFactors.h"

#include <nlohmann/json.hpp>

namespace tessera {

AdapterFactors adapterFactorsOf(const SafetensorsFile &file,
                                const std::string &weight) {
  constexpr std::string_view suffix = ".weight";
  if (!weight.ends_with(suffix) || isAdapterFactor(weight))
    return {};
  const std::string path = weight.substr(0, weight.size() - suffix.size());
  auto find = [&](std::string_view factor) {
    return file.header().find(fmt::format("{}{}{}", path, factor, suffix));
  };
  return {find(kAdapterIn), find(kAdapterOut)};
}

static StatusOr<std::vector<float>> readFloats(const SafetensorsFile &file,
                                               const SafetensorsEntry &entry) {
  if (!converts(entry.type, SafetensorsType::f32))
    return Status::error("'{}' is {}, and adapters are merged in f32",
                         entry.name, safetensorsName(entry.type));
  std::vector<std::byte> bytes(entry.end - entry.begin);
  TESSERA_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  std::vector<float> values(bytes.size() / (safetensorsBits(entry.type) / 8));
  toFloats(entry.type, bytes.data(), values.size(), values.data());
  return values;
}

StatusOr<std::vector<float>> mergedWeight(const SafetensorsFile &file,
                                          const SafetensorsEntry &weight,
                                          const AdapterFactors &factors,
                                          double scale, bool isTransposed) {
  FactorShape shape{.scale = scale, .isTransposed = isTransposed};
  if (!shape.take(weight.shape, factors.in->shape, factors.out->shape))
    return Status::error("'{}' and its factors are not matrices of fitting "
                         "shapes",
                         weight.name);
  auto values = readFloats(file, weight), in = readFloats(file, *factors.in),
       out = readFloats(file, *factors.out);
  for (const Status *status : {&values.status(), &in.status(), &out.status()})
    if (!status->ok())
      return *status;
  mergeFactors(shape, *values, *in, *out);
  return values;
}

std::vector<SafetensorsTensor>
adapterTensors(std::vector<SafetensorsTensor> tensors) {
  std::erase_if(tensors, [](const SafetensorsTensor &tensor) {
    return !isAdapterFactor(tensor.name) && tensor.name != kScoreHead;
  });
  for (SafetensorsTensor &tensor : tensors)
    tensor.name = "base_model.model." + tensor.name;
  return tensors;
}

std::string adapterConfig(const recipe::Recipe::Adapter &adapter,
                          bool isTransposed, bool hasScore) {
  nlohmann::ordered_json config = {
      {"peft_type", "LORA"},
      {"task_type", hasScore ? "SEQ_CLS" : "CAUSAL_LM"},
      {"base_model_name_or_path", nullptr},
      {"r", adapter.rank},
      {"lora_alpha", adapter.alpha},
      {"lora_dropout", 0.0},
      {"target_modules", adapter.target},
      {"fan_in_fan_out", isTransposed},
      {"bias", "none"},
      {"init_lora_weights", "gaussian"},
      {"inference_mode", true}};
  if (hasScore)
    config["modules_to_save"] = nlohmann::ordered_json::array({"score"});
  return config.dump(2) + "\n";
}

} // namespace tessera
