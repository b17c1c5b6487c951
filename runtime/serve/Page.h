// The page at `/`: a chat and live metrics in one file without external
// resources (page/index.html, which the build embeds).
#pragma once
#include <string_view>

namespace tessera::serve {

std::string_view pageHtml();

} // namespace tessera::serve
