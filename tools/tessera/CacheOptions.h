// The user's caches as every command asks for them that compiles programs or
// reads weights: a flag, or the environment.
#pragma once
#include "compiler/Driver.h"
#include "runtime/weights/WeightCache.h"

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace tessera {

/// Unless somebody says otherwise.
constexpr uint64_t kCacheGib = CompileRequest::kMostCacheBytes >> 30,
                   kKeptGib = WeightCache::kMostBytes >> 30;

/// Adds --cache (TESSERA_CACHE), of `what`, and --cache-size
/// (TESSERA_CACHE_SIZE), what compiled programs may take there.
void addCacheOptions(CLI::App &command, std::string &mode, uint64_t &gib,
                     const std::string &what = "of compiled programs");

/// Adds --weight-cache (TESSERA_WEIGHT_CACHE).
void addWeightCacheOption(CLI::App &command, uint64_t &gib,
                          const std::string &help);

} // namespace tessera
