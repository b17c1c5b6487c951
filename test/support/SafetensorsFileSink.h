// What a test writes of safetensors, in a file.
#pragma once
#include "runtime/data/Safetensors.h"

#include <fstream>
#include <string>

namespace tessera::testing {

class SafetensorsFileSink : public SafetensorsSink {
public:
  explicit SafetensorsFileSink(const std::string &path)
      : file(path, std::ios::binary) {}
  Status write(std::span<const std::byte> bytes) override {
    file.write(reinterpret_cast<const char *>(bytes.data()),
               std::streamsize(bytes.size()));
    return file ? Status::success() : Status::error("the file is not written");
  }

private:
  std::ofstream file;
};

} // namespace tessera::testing
