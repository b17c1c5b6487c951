#include "runtime/rl/HostWeights.h"

#include <algorithm>
#include <cassert>

namespace tessera::rl {

/// Tensors begin on cache lines, which no two threads write then.
constexpr uint64_t kAlignment = 64;

HostWeights::HostWeights(std::vector<StateTensor> given)
    : tensors(std::move(given)), written(tensors.size(), 0) {
  uint64_t end = 0;
  for (const StateTensor &tensor : tensors) {
    offsets.push_back(end);
    end += (tensor.size + kAlignment - 1) / kAlignment * kAlignment;
  }
  bytes.resize(end);
}

Status HostWeights::readState(const StateTensor &tensor, uint64_t offset,
                              std::span<std::byte> out) {
  std::ranges::copy(stateInMemory(tensor).subspan(offset, out.size()),
                    out.begin());
  return Status::success();
}

Status HostWeights::writeState(const StateTensor &tensor, uint64_t offset,
                               std::span<const std::byte> given) {
  const std::size_t index = std::size_t(&tensor - tensors.data());
  assert(index < tensors.size() && offset + given.size() <= tensor.size);
  std::ranges::copy(given, bytesOf(index).begin() + std::ptrdiff_t(offset));
  written[index] = 1;
  return Status::success();
}

std::vector<uint32_t> HostWeights::takeWritten() {
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < written.size(); ++i)
    if (std::exchange(written[i], 0))
      result.push_back(i);
  return result;
}

} // namespace tessera::rl
