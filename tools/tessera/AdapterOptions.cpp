#include "tools/tessera/AdapterOptions.h"
#include <CLI/CLI.hpp>

void tessera::addAdapterSlotOptions(CLI::App &command,
                                    AdapterSettings &settings,
                                    const std::string &slotsHelp) {
  command.add_option("--adapter-slots", settings.slots, slotsHelp)
      ->check(CLI::Range(1, 1 << 12))
      ->type_name("N");
  command
      .add_option("--adapter-rank", settings.rank,
                  "largest rank of an adapter (default: the largest given one, "
                  "or 16)")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N");
  command
      .add_option("--adapter-target", settings.targets,
                  "linear layers that adapters may change, by the last part of "
                  "their names, such as q_proj,v_proj (default: those of the "
                  "given adapters, or all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
}
