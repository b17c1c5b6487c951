#include "tools/tessera/CacheOptions.h"
#include <CLI/CLI.hpp>

static const CLI::Range gibibytes(0, 1 << 20);

void tessera::addCacheOptions(CLI::App &command, std::string &mode,
                              uint64_t &gib, const std::string &what) {
  command
      .add_option("--cache", mode,
                  what + ": on; off; redo: write, don't read; readonly: read, "
                         "don't write. Stored in $XDG_CACHE_HOME/tessera")
      ->type_name("MODE")
      ->check(CLI::IsMember({"on", "off", "redo", "readonly"}))
      ->envname("TESSERA_CACHE")
      ->capture_default_str();
  command
      .add_option("--cache-size", gib,
                  "size limit of cached programs in GiB; the least recently "
                  "used are evicted. 0: do not cache them")
      ->type_name("GIB")
      ->check(gibibytes)
      ->envname("TESSERA_CACHE_SIZE")
      ->capture_default_str();
}

void tessera::addWeightCacheOption(CLI::App &command, uint64_t &gib,
                                   const std::string &help) {
  command.add_option("--weight-cache", gib, help)
      ->type_name("GIB")
      ->check(gibibytes)
      ->envname("TESSERA_WEIGHT_CACHE")
      ->capture_default_str();
}
