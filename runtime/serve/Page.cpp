#include "runtime/serve/Page.h"

namespace tessera::serve {
namespace {

struct EmbeddedFile {
  std::string_view name, text;
};

#include "runtime/serve/Page.inc"

} // namespace

std::string_view pageHtml() { return kPageFiles[0].text; }

} // namespace tessera::serve
