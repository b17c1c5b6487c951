// libFuzzer target: whatever the bytes, a GGUF file is read or refused with one
// line, and what is read stays within the file.
#include "runtime/data/gguf/Gguf.h"

#include <algorithm>
#include <cstdlib>

using namespace tessera;

static void check(bool promise) {
  if (!promise)
    std::abort();
}

static void readAll(const GgufValue &value) {
  bool flag = false;
  uint64_t whole = 0;
  int64_t number = 0;
  double real = 0;
  std::string_view text;
  if (value.get(flag) || value.get(real))
    return;
  if (value.get(whole) && value.get(number))
    check(number >= 0 && static_cast<uint64_t>(number) == whole);
  if (value.get(text))
    check(std::ranges::count(text, 'x') <= std::ptrdiff_t(text.size()));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, std::size_t size) {
  auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    const std::string &error = file.message();
    check(!error.empty() && error.size() < 1000);
    check(error.find('\n') == error.npos);
    return 0;
  }
  for (const auto &[key, value] : file->metadata()) {
    check(file->find(key) == &value);
    readAll(value);
    for (std::size_t i = 0; i < value.size(); ++i)
      readAll(value.at(i));
  }
  for (const auto &[name, tensor] : file->tensors()) {
    auto bytes = file->bytes(tensor);
    check(bytes.size() == tensor.size && tensor.offset + tensor.size <= size);
    if (!isDequantized(tensor.type))
      continue;
    auto info = *ggufTypeInfo(tensor.type);
    std::vector<float> values(tensor.size / info.bytes * info.block);
    dequantize(tensor.type, bytes, values);
  }
  return 0;
}
