// The page at `/`: a chat and live metrics in one file without anything from
// elsewhere (page/index.html, which the build puts into the program).
#pragma once
#include <string_view>

namespace tessera::serve {

std::string_view pageHtml();

} // namespace tessera::serve
