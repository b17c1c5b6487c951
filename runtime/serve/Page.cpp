#include "runtime/serve/Page.h"
#include "runtime/support/Hash.h"

#include <map>
#include <span>

#include <fmt/format.h>

namespace tessera::serve {
namespace {

struct EmbeddedFile {
  std::string_view name, text;
};

#include "runtime/serve/Page.inc"

std::string_view typeOf(std::string_view name) {
  if (name.ends_with(".js"))
    return "text/javascript; charset=utf-8";
  if (name.ends_with(".css"))
    return "text/css; charset=utf-8";
  return "text/html; charset=utf-8";
}

using Files = std::map<std::string_view, PageFile>;

Files filesByName() {
  Files files;
  for (const EmbeddedFile &file : kPageFiles) {
    std::string_view name = file.name.substr(file.name.rfind('/') + 1);
    std::uint64_t hash = hash64(std::as_bytes(std::span(file.text)));
    files.emplace(name, PageFile{file.text, typeOf(name),
                                 fmt::format("\"{:016x}\"", hash)});
  }
  return files;
}

} // namespace

const PageFile *findPageFile(std::string_view name) {
  static const Files files = filesByName();
  auto found = files.find(name);
  return found == files.end() ? nullptr : &found->second;
}

} // namespace tessera::serve
