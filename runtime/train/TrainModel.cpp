#include "runtime/train/TrainModel.h"

namespace tessera {

const StateTensor *TrainModel::find(std::string_view name) const {
  for (const StateTensor &tensor : state())
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

} // namespace tessera
