#include "runtime/generate/AdapterExport.h"
#include "runtime/weights/AdapterNames.h"

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
  if (entry.type != SafetensorsType::f32)
    return Status::error("'{}' is {}, and adapters are merged in f32",
                         entry.name, safetensorsName(entry.type));
  std::vector<float> values((entry.end - entry.begin) / sizeof(float));
  TESSERA_RETURN_IF_ERROR(
      file.read(entry, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

StatusOr<std::vector<float>> mergedWeight(const SafetensorsFile &file,
                                          const SafetensorsEntry &weight,
                                          const AdapterFactors &factors,
                                          double scale, bool isTransposed) {
  const auto isMatrix = [](const SafetensorsEntry &entry) {
    return entry.shape.size() == 2;
  };
  if (!isMatrix(weight) || !isMatrix(*factors.in) || !isMatrix(*factors.out))
    return Status::error("'{}' and its factors must be matrices", weight.name);
  auto values = readFloats(file, weight), in = readFloats(file, *factors.in),
       out = readFloats(file, *factors.out);
  for (const Status *status : {&values.status(), &in.status(), &out.status()})
    if (!status->ok())
      return *status;
  const uint64_t rank = factors.in->shape[0], columns = factors.in->shape[1],
                 rows = factors.out->shape[0];
  const std::vector<uint64_t> shape =
      isTransposed ? std::vector{columns, rows} : std::vector{rows, columns};
  if (factors.out->shape[1] != rank || weight.shape != shape)
    return Status::error("the factors of '{}' do not have its shape",
                         weight.name);
  std::vector<double> sums(columns);
  for (uint64_t row = 0; row < rows; ++row) {
    std::ranges::fill(sums, 0.0);
    for (uint64_t k = 0; k < rank; ++k)
      for (uint64_t column = 0; column < columns; ++column)
        sums[column] += double((*out)[row * rank + k]) *
                        double((*in)[k * columns + column]);
    for (uint64_t column = 0; column < columns; ++column) {
      float &value = (*values)[isTransposed ? column * rows + row
                                            : row * columns + column];
      value = static_cast<float>(double(value) + scale * sums[column]);
    }
  }
  return values;
}

std::vector<SafetensorsTensor>
adapterTensors(std::vector<SafetensorsTensor> tensors) {
  std::erase_if(tensors, [](const SafetensorsTensor &tensor) {
    return !isAdapterFactor(tensor.name);
  });
  for (SafetensorsTensor &tensor : tensors)
    tensor.name = "base_model.model." + tensor.name;
  return tensors;
}

std::string adapterConfig(const recipe::Recipe::Adapter &adapter,
                          bool isTransposed) {
  const nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                         {"task_type", "CAUSAL_LM"},
                                         {"base_model_name_or_path", nullptr},
                                         {"r", adapter.rank},
                                         {"lora_alpha", adapter.alpha},
                                         {"lora_dropout", 0.0},
                                         {"target_modules", adapter.target},
                                         {"fan_in_fan_out", isTransposed},
                                         {"bias", "none"},
                                         {"init_lora_weights", "gaussian"},
                                         {"inference_mode", true}};
  return config.dump(2) + "\n";
}

} // namespace tessera
