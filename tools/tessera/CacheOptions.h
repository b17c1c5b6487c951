// Options of the user's caches, shared by all commands that compile programs or
// read weights. Each is a flag or an environment variable.
#pragma once
#include "compiler/Driver.h"
#include "runtime/weights/WeightCache.h"

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace tessera {

/// The default size limit of the cache.
constexpr uint64_t kCacheGib = CompileRequest::kMostCacheBytes >> 30,
                   kKeptGib = WeightCache::kMostBytes >> 30;

/// Adds --cache (TESSERA_CACHE), described as "cache of `what`", and
/// --cache-size (TESSERA_CACHE_SIZE), the size limit of compiled programs.
void addCacheOptions(CLI::App &command, std::string &mode, uint64_t &gib,
                     const std::string &what = "of compiled programs");

/// Adds --weight-cache (TESSERA_WEIGHT_CACHE).
void addWeightCacheOption(CLI::App &command, uint64_t &gib,
                          const std::string &help);

} // namespace tessera
