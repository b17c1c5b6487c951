// LoRA adapters that a command computes with: the programs that have slots for
// them, and their factors.
#pragma once
#include "compiler/api/OpenedModel.h"

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
  /// The recipe's keys for programs with such slots; none if it is not used.
  /// Directories that are not adapters are errors.
  StatusOr<std::vector<std::string>> keys() const;
  /// Compiles `choice` with these keys. Errors come before anything is
  /// compiled.
  Status apply(ModelChoice &choice,
               const std::optional<ModelSource> &source) const;
};

/// Of commands with at most one adapter: reads the model, to be compiled with a
/// slot for `adapter`, a directory, unless that is empty.
Status readModel(OpenedModel &opened, ModelChoice choice,
                 const std::string &adapter);
/// The same of a source that findModel gave; null: a run, which has no slots.
Status readModel(OpenedModel &opened, ModelChoice choice,
                 std::optional<ModelSource> source, const std::string &adapter);
/// Fills the first slot of the opened model. An error if it has none, or if the
/// directory has no adapter that fits.
Status loadAdapter(const std::string &adapter, OpenedModel &opened);

} // namespace tessera
