// Writes a safetensors file of given numbers.
#pragma once
#include "test/support/SafetensorsFileSink.h"

#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

namespace tessera::testing {

/// Tensors of a file.
class TensorFile {
public:
  template <typename Element>
  void add(std::string name, SafetensorsType type, std::vector<uint64_t> shape,
           const std::vector<Element> &values) {
    std::string bytes(reinterpret_cast<const char *>(values.data()),
                      values.size() * sizeof(Element));
    all.push_back({std::move(name), type, std::move(shape), bytes.size(),
                   [bytes](SafetensorsSink &sink) {
                     return sink.write(std::as_bytes(std::span(bytes)));
                   }});
  }
  void write(const std::string &path) const {
    SafetensorsFileSink file(path);
    ASSERT_TRUE(writeSafetensors(file, all, {}).ok());
  }

private:
  std::vector<SafetensorsTensor> all;
};

} // namespace tessera::testing
