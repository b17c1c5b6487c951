#include "runtime/data/IndexFields.h"

#include <charconv>

namespace tessera {

uint64_t IndexFields::hash(std::string_view key) {
  const std::string digits = text(key);
  uint64_t hash = 0;
  auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  if (digits.size() != 16 || error != std::errc() ||
      end != digits.data() + digits.size())
    fail(key, "must be 16 hexadecimal digits");
  return hash;
}

std::string IndexFields::fileName(std::string_view key) {
  std::string name = text(key);
  if (!isPlainName(name))
    fail(key, "must be a plain file name within the folder");
  return name;
}

bool isPlainName(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

} // namespace tessera
