// A model's weights: those of a directory or file, opened on demand, or those
// of a file of another format that was opened already.
#pragma once
#include "runtime/data/Safetensors.h"

#include <memory>
#include <string>

namespace tessera {

class WeightFiles {
public:
  /// As SafetensorsModel::open takes it. Implicit: what reads weights takes the
  /// name of a directory as well.
  WeightFiles(std::string path) : from(std::move(path)) {}
  WeightFiles(const char *path) : from(path) {}
  /// `place` names their origin in errors.
  WeightFiles(std::string place, std::shared_ptr<const SafetensorsModel> model)
      : from(std::move(place)), opened(std::move(model)) {}

  StatusOr<std::shared_ptr<const SafetensorsModel>> open() const {
    if (opened)
      return opened;
    auto model = SafetensorsModel::open(from);
    if (!model.ok())
      return model.status();
    return std::make_shared<const SafetensorsModel>(model.take());
  }
  /// The directory or the file.
  const std::string &place() const { return from; }
  /// Whether they are of a file of another format.
  bool isOtherFormat() const { return opened != nullptr; }

private:
  std::string from;
  std::shared_ptr<const SafetensorsModel> opened;
};

} // namespace tessera
