// The options of commands that compute with LoRA adapters.
#pragma once
#include "compiler/api/AdapterSettings.h"

#include <string>

namespace CLI {
class App;
}

namespace tessera {

/// --adapter-slots, --adapter-rank and --adapter-target.
void addAdapterSlotOptions(CLI::App &command, AdapterSettings &settings,
                           const std::string &slotsHelp);

} // namespace tessera
