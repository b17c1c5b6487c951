// Where the user's caches are.
#pragma once
#include <string>

namespace tessera {

/// $XDG_CACHE_HOME/tessera, or $HOME/.cache/tessera where that variable is
/// unset or, as its specification wants, not absolute; empty where $HOME is
/// neither. Nothing is created.
std::string userCacheFolder();

} // namespace tessera
