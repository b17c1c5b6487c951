// A directory that goes away with the test.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

class ScratchDirectory {
public:
  ScratchDirectory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tessera-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ScratchDirectory(const ScratchDirectory &) = delete;
  std::string operator/(const std::string &name) const {
    return path + "/" + name;
  }
  std::string path;
};

} // namespace tessera::testing
