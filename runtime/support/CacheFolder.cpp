#include "runtime/support/CacheFolder.h"

#include <cstdlib>

namespace tessera {

std::string userCacheFolder() {
  const auto absolute = [](const char *variable) -> std::string {
    const char *path = std::getenv(variable);
    return path && *path == '/' ? path : "";
  };
  if (const std::string base = absolute("XDG_CACHE_HOME"); !base.empty())
    return base + "/tessera";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/tessera";
}

} // namespace tessera
