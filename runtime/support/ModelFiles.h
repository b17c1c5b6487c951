// The texts that a model brings beside its weights: config.json, tokenizer.json
// and so on, wherever they are.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class ModelFiles {
public:
  using Texts = std::map<std::string, std::string, std::less<>>;

  /// The files of a directory, read when they are asked for. Implicit: what
  /// reads a model's files takes the name of a directory as well.
  ModelFiles(std::string directory) : from(std::move(directory)) {}
  /// Texts by name, "config.json"; `place` is where they come from, for
  /// errors.
  ModelFiles(std::string place, Texts texts)
      : from(std::move(place)),
        texts(std::make_shared<const Texts>(std::move(texts))) {}

  /// `name` is a path in the directory: "1_Pooling/config.json".
  bool has(std::string_view name) const;
  /// Of texts at hand, their names.
  std::vector<std::string> names() const;
  /// As readTextFile reads it.
  StatusOr<std::string> read(std::string_view name, int64_t maxBytes) const;
  /// How errors name the file.
  std::string where(std::string_view name) const;
  /// The directory, or what stands for it.
  const std::string &place() const { return from; }

private:
  std::string from;
  std::shared_ptr<const Texts> texts; // null: a directory's; shared by copies
};

} // namespace tessera
