// libFuzzer target: whatever the bytes, a safetensors header is read or
// refused, and what is read stays within the file; of a model, too, whose 8-bit
// floats become bf16 by scales that are among the bytes, and by a config.json
// beside it, which is the metadata "config".
#include "runtime/data/Safetensors.h"
#include "test/support/ScratchDirectory.h"

#include <cstdlib>
#include <fstream>

using namespace tessera;

/// What an accepted header promises to its users; a breach is a crash.
static void check(bool promise) {
  if (!promise)
    std::abort();
}

static void checkError(const Status &status) {
  const std::string &error = status.message();
  // Of a name 120 characters are shown, which escaped are six times as many.
  check(!error.empty() && error.size() < 2000);
  check(error.find('\n') == error.npos);
}

static void writeTo(const std::string &path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  check(bool(file.write(text.data(), std::streamsize(text.size())).flush()));
}

/// Reads all of a model, with 8-bit floats among its tensors.
static void readModel(const uint8_t *data, std::size_t size,
                      const SafetensorsHeader &header) {
  static const tessera::testing::ScratchDirectory folder;
  writeTo(folder / "model.safetensors",
          {reinterpret_cast<const char *>(data), size});
  auto config = header.metadata.find("config");
  writeTo(folder / "config.json",
          config == header.metadata.end() ? "{}" : config->second);
  auto model = SafetensorsModel::open(folder.path);
  if (!model.ok())
    return checkError(model.status());
  for (const auto &[name, at] : model->tensors()) {
    std::vector<std::byte> bytes(at.entry->end - at.entry->begin);
    if (Status status = at.file->read(*at.entry, 0, bytes); !status.ok())
      checkError(status);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, std::size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  StatusOr<SafetensorsHeader> header = parseSafetensors(bytes, size);
  if (!header.ok()) {
    checkError(header.status());
    return 0;
  }
  uint64_t position = 0;
  bool hasFloat8 = false;
  for (const SafetensorsEntry &entry : header->tensors) {
    check(entry.begin == position && entry.begin <= entry.end);
    check(entry.end <= size - header->dataStart);
    check(header->find(entry.name) == &entry);
    position = entry.end;
    hasFloat8 |= entry.type == SafetensorsType::f8_e4m3;
  }
  check(header->dataStart + position == size);
  if (hasFloat8)
    readModel(data, size, *header);
  return 0;
}
