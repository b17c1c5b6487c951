#include "runtime/weights/ModelState.h"

#include <algorithm>

namespace tessera {

const StateTensor *ModelState::find(std::string_view name) const {
  for (const StateTensor &tensor : state())
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

std::span<std::byte> parametersInMemory(ModelState &model) {
  constexpr std::size_t kHugePage = std::size_t(2) << 20;
  std::byte *begin = nullptr, *end = nullptr;
  for (const StateTensor &tensor : model.state()) {
    if (tensor.role != StateRole::parameter)
      continue;
    auto here = model.stateInMemory(tensor);
    if (here.empty())
      return {};
    begin = begin ? std::min(begin, here.data()) : here.data();
    end = std::max(end, here.data() + here.size());
  }
  for (const StateTensor &tensor : model.state()) {
    if (tensor.role == StateRole::parameter)
      continue;
    auto here = model.stateInMemory(tensor);
    if (here.data() < end && here.data() + here.size() > begin)
      return {};
  }
  if (reinterpret_cast<uintptr_t>(begin) % kHugePage != 0)
    return {};
  return {begin, end};
}

} // namespace tessera
