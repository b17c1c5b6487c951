#include "runtime/support/ModelFiles.h"
#include "runtime/support/Text.h"

#include <filesystem>

namespace tessera {

std::string ModelFiles::where(std::string_view name) const {
  const char *between = contents ? ": " : from.ends_with('/') ? "" : "/";
  return fmt::format("{}{}{}", from, between, name);
}

bool ModelFiles::has(std::string_view name) const {
  std::error_code ignored;
  return contents ? contents->contains(name)
                  : std::filesystem::exists(where(name), ignored);
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  if (contents)
    for (const auto &[name, text] : *contents)
      names.push_back(name);
  return names;
}

StatusOr<std::string> ModelFiles::read(std::string_view name,
                                       int64_t maxBytes) const {
  if (!contents)
    return readTextFile(where(name), maxBytes);
  auto found = contents->find(name);
  if (found == contents->end())
    return Status::error("{}: no such file", where(name));
  if (found->second.size() > static_cast<uint64_t>(maxBytes))
    return Status::error("{}: larger than {} bytes, which no such file is",
                         where(name), maxBytes);
  return found->second;
}

} // namespace tessera
