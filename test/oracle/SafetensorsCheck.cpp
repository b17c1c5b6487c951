// Says for every case on standard input what our reader makes of it, for
// safetensors_oracle.py. Input: repeated (u64 length, bytes). Output: one line
// a case, "ok" and the tensors by name, or "no" and the error.
#include "runtime/data/Safetensors.h"

#include <cstdio>

using namespace tessera;

static std::string describe(const SafetensorsHeader &header) {
  std::string line = "ok";
  for (const auto &[name, index] : header.byName) {
    const SafetensorsEntry &entry = header.tensors[index];
    std::string hex;
    for (unsigned char byte : name)
      hex += fmt::format("{:02x}", byte);
    line += fmt::format(" {}:{}:{}:{}", hex, safetensorsName(entry.type),
                        fmt::join(entry.shape, ","), entry.end - entry.begin);
  }
  return line;
}

int main() {
  uint64_t length = 0;
  while (std::fread(&length, 8, 1, stdin) == 1) {
    std::vector<std::byte> bytes(length);
    if (length && std::fread(bytes.data(), length, 1, stdin) != 1)
      return 1;
    StatusOr<SafetensorsHeader> header = parseSafetensors(bytes, length);
    std::string line =
        header.ok() ? describe(*header) : "no " + header.message();
    std::puts(line.c_str());
  }
  return 0;
}
