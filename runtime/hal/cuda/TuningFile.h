// Choices made by timing, stored for the next start.
#pragma once
#include "runtime/support/Status.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::hal::cuda {

/// A small file in tuning/ of the user's caches (CacheFolder.h): "tessera
/// tuning 1", "key KEY", then a line "KERNEL CHOICE" each. One that is anything
/// else, or of another key, counts as absent and is overwritten.
class TuningFile {
public:
  /// `key` names what the choices hold for; one line.
  explicit TuningFile(std::string key);
  /// What is known of the kernel.
  std::optional<std::string> find(std::string_view kernel) const;
  /// Neither may hold white space.
  void set(std::string_view kernel, std::string_view choice);
  /// Writes the file if anything new was set. Other processes see the old file
  /// or the new one. Does nothing without a cache folder.
  Status write() const;

private:
  void read();

  std::string key;
  std::filesystem::path path; ///< empty: nowhere
  std::map<std::string, std::string, std::less<>> choices;
  bool isChanged = false;
};

} // namespace tessera::hal::cuda
