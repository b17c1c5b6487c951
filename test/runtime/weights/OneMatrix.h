// A model of one quantized matrix, or of one stack of such, for checkpoints
// that have it packed.
#pragma once
#include "runtime/data/Safetensors.h"
#include "test/runtime/train/FakeTrainModel.h"
#include "test/support/SafetensorsFileSink.h"

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::testing {

/// The matrix "x.weight", or `stack` of them, whose state is kept as it is
/// written.
class OneMatrix : public FakeTrainModel {
public:
  explicit OneMatrix(const QuantizedLayout &layout,
                     const char *source = "x.weight", int64_t stack = 0) {
    auto add = [&](const char *name, bool isScales, SafetensorsType type,
                   uint64_t middle, uint64_t bytes) {
      auto micropanels = static_cast<uint64_t>(layout.micropanels());
      parts.push_back({name,
                       type,
                       {micropanels, middle, 16},
                       StateRole::parameter,
                       micropanels * middle * 16 * bytes,
                       QuantizedPart{source, isScales, layout, false, stack}});
      held[name].resize(parts.back().size);
    };
    add("x.values", false, SafetensorsType::i32, layout.words(), 4);
    if (layout.hasScales())
      add("x.scales", true,
          layout.scaleWords() ? SafetensorsType::i32 : SafetensorsType::f16,
          layout.scaleRows(), uint64_t(layout.scaleBytes()));
  }
  const std::vector<StateTensor> &state() const override { return parts; }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    std::memcpy(out.data(), held[tensor.name].data() + offset, out.size());
    return Status::success();
  }
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override {
    std::ranges::copy(bytes, held[tensor.name].begin() + int64_t(offset));
    return Status::success();
  }
  template <typename T> T at(const char *name, int64_t index) {
    T value;
    std::memcpy(&value, held[name].data() + index * int64_t(sizeof(T)),
                sizeof(T));
    return value;
  }

private:
  std::vector<StateTensor> parts;
  std::map<std::string, std::vector<std::byte>> held;
};

/// A file of tensors, written from values in memory.
class PackedFile {
public:
  /// `values` must live until write().
  template <typename Values>
  void add(const char *name, SafetensorsType type, std::vector<uint64_t> shape,
           const Values &values) {
    auto bytes = std::as_bytes(std::span(values));
    tensors.push_back(
        {name, type, std::move(shape), bytes.size(),
         [bytes](SafetensorsSink &sink) { return sink.write(bytes); }});
  }
  void write(const std::string &path) const {
    SafetensorsFileSink file(path);
    ASSERT_TRUE(writeSafetensors(file, tensors, {}).ok());
  }

private:
  std::vector<SafetensorsTensor> tensors;
};

} // namespace tessera::testing
