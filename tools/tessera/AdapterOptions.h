// The options of commands that generate text with LoRA adapters.
#pragma once
#include "compiler/api/OpenedModel.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera {

/// The given adapters, and the size of the programs' slots for them; 0 and
/// empty: as the adapters need.
struct AdapterSettings {
  struct Given {
    std::string name, directory;
  };
  std::vector<Given> given;
  int64_t slots = 0, rank = 0;
  std::vector<std::string> targets;

  bool isUsed() const { return !given.empty() || slots > 0; }
  /// Sets the recipe's keys by which `choice` is compiled with slots. Adapters
  /// that are no adapters are errors here, before anything is compiled; a
  /// packaged model has the slots that it was compiled with.
  Status apply(ModelChoice &choice,
               const std::optional<ModelSource> &source) const;
};

/// --adapter-slots, --adapter-rank and --adapter-target.
void addAdapterSlotOptions(CLI::App &command, AdapterSettings &settings,
                           const std::string &slotsHelp);

} // namespace tessera
