// The state of a model that was compiled with slots for adapters.
#pragma once
#include "runtime/weights/ModelState.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace tessera::testing {

/// Three slots of rank 2 for one layer of 3 inputs and 2 outputs.
class AdapterSlotsModel : public ModelState {
public:
  AdapterSlotsModel() {
    add("model.layers.0.q_proj.lora_A.weight", {3, 2, 3});
    add("model.layers.0.q_proj.lora_B.weight", {3, 2, 2});
  }
  /// Their magnitudes, and the layer's matrix.
  void addMagnitudes(const std::vector<float> &weight, uint64_t inputs = 3) {
    add("model.layers.0.q_proj.lora_magnitude_vector", {3, 1, 2});
    add("model.layers.0.q_proj.weight", {2, inputs});
    held["model.layers.0.q_proj.weight"] = weight;
  }
  const std::vector<StateTensor> &state() const override { return tensors; }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    const auto bytes = std::as_bytes(std::span(held[tensor.name]));
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return Status::success();
  }
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override {
    const auto to = std::as_writable_bytes(std::span(held[tensor.name]));
    std::memcpy(to.data() + offset, bytes.data(), bytes.size());
    return Status::success();
  }
  std::map<std::string, std::vector<float>> held; ///< by the tensors' names

private:
  void add(const char *name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (uint64_t size : shape)
      count *= size;
    tensors.push_back({name, SafetensorsType::f32, std::move(shape),
                       StateRole::parameter, count * sizeof(float)});
    held[name].assign(count, -1);
  }
  std::vector<StateTensor> tensors;
};

} // namespace tessera::testing
