// libFuzzer target: whatever the bytes, a safetensors header is read or
// refused, and what is read stays within the file; of a model, too, whose 8-bit
// floats become bf16 by scales that are among the bytes.
#include "runtime/data/Safetensors.h"

#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

using namespace tessera;

/// What an accepted header promises to its users; a breach is a crash.
static void check(bool promise) {
  if (!promise)
    std::abort();
}

static void checkError(const Status &status) {
  const std::string &error = status.message();
  check(!error.empty() && error.size() < 1000);
  check(error.find('\n') == error.npos);
}

/// Reads all of a model, with 8-bit floats among its tensors.
static void readModel(const uint8_t *data, std::size_t size) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  check(fd >= 0 && ::write(fd, data, size) == ssize_t(size));
  auto model = SafetensorsModel::open("/proc/self/fd/" + std::to_string(fd));
  if (!model.ok())
    checkError(model.status());
  else
    for (const auto &[name, at] : model->tensors()) {
      std::vector<std::byte> bytes(at.entry->end - at.entry->begin);
      if (Status status = at.file->read(*at.entry, 0, bytes); !status.ok())
        checkError(status);
    }
  ::close(fd);
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
    readModel(data, size);
  return 0;
}
