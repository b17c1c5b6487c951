// A model's files other than its weights (config.json, tokenizer.json and so
// on), from a directory or from memory.
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
  using Contents = std::map<std::string, std::string, std::less<>>;

  /// The files of a directory, read on demand. Implicit: what reads a model's
  /// files takes the name of a directory as well.
  ModelFiles(std::string directory) : from(std::move(directory)) {}
  /// Contents by file name ("config.json"); `place` names their origin in
  /// errors.
  ModelFiles(std::string place, Contents contents)
      : from(std::move(place)),
        contents(std::make_shared<const Contents>(std::move(contents))) {}

  /// `name` is a path in the directory: "1_Pooling/config.json".
  bool has(std::string_view name) const;
  /// The file names, if the contents are in memory; otherwise empty.
  std::vector<std::string> names() const;
  /// As readTextFile reads it.
  StatusOr<std::string> read(std::string_view name, int64_t maxBytes) const;
  /// How errors name the file.
  std::string where(std::string_view name) const;
  /// The directory, or the origin of contents in memory.
  const std::string &place() const { return from; }

private:
  std::string from;
  std::shared_ptr<const Contents> contents; // null: files of a directory
};

} // namespace tessera
