// libFuzzer target: whatever the bytes, a safetensors header is read or
// refused, and what is read stays within the file.
#include "runtime/data/Safetensors.h"

#include <cstdlib>

using namespace tessera;

/// What an accepted header promises to its users; a breach is a crash.
static void check(bool promise) {
  if (!promise)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, std::size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  StatusOr<SafetensorsHeader> header = parseSafetensors(bytes, size);
  if (!header.ok()) {
    const std::string &error = header.message();
    check(!error.empty() && error.size() < 1000);
    check(error.find('\n') == error.npos);
    return 0;
  }
  uint64_t position = 0;
  for (const SafetensorsEntry &entry : header->tensors) {
    check(entry.begin == position && entry.begin <= entry.end);
    check(entry.end <= size - header->dataStart);
    check(header->find(entry.name) == &entry);
    position = entry.end;
  }
  check(header->dataStart + position == size);
  return 0;
}
