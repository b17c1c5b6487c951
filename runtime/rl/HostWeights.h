// Parameters in this process's memory, on their way to a model in another one.
#pragma once
#include "runtime/weights/ModelState.h"

namespace tessera::rl {

class HostWeights final : public ModelState {
public:
  /// Parameters alone, whose sizes are those of their shapes and types.
  explicit HostWeights(std::vector<StateTensor> tensors);

  const std::vector<StateTensor> &state() const override { return tensors; }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override;
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override;
  std::span<std::byte> stateInMemory(const StateTensor &tensor) override {
    return bytesOf(std::size_t(&tensor - tensors.data()));
  }

  /// The bytes of tensor `index` of state().
  std::span<std::byte> bytesOf(std::size_t index) {
    return std::span(bytes).subspan(offsets[index], tensors[index].size);
  }
  /// Which tensors were written since the last call.
  std::vector<uint32_t> takeWritten();

private:
  std::vector<StateTensor> tensors;
  std::vector<uint64_t> offsets;
  std::vector<std::byte> bytes;
  std::vector<uint8_t> written; ///< by tensor; not bits, for several threads
};

} // namespace tessera::rl
