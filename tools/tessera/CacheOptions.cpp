#include "tools/tessera/CacheOptions.h"
#include <CLI/CLI.hpp>

static const CLI::Range gibibytes(0, 1 << 20);

void tessera::addCacheOptions(CLI::App &command, std::string &mode,
                              uint64_t &gib, const std::string &what) {
  command
      .add_option("--cache", mode,
                  what + ": on; off; redo: write, don't read; readonly: read, "
                         "don't write. It is in $XDG_CACHE_HOME/tessera")
      ->type_name("MODE")
      ->check(CLI::IsMember({"on", "off", "redo", "readonly"}))
      ->envname("TESSERA_CACHE")
      ->capture_default_str();
  command
      .add_option("--cache-size", gib,
                  "GiB that compiled programs may take there; those that were "
                  "used longest ago make room. 0: --cache off for them")
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
