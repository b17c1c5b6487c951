// Checkpoints: RUN/step-000100/ with
//   model.safetensors      parameters under their Hugging Face names, stacks of
//                          experts split (runtime/weights/StateParts.h)
//   optimizer.safetensors  moments, counters, hyperparameters
//   config.json            of the model, so that others can load the weights
//   manifest.json          sizes, hashes and the run's progress
//
// A checkpoint is written under a temporary name in the same directory. Every
// file and then the directory is synced, the directory renamed, and the parent
// synced. After a power cut there are only complete checkpoints and at most one
// directory ".tmp-…", which the next save removes. The manifest has the size
// and XXH3-64 of every file and of itself, so corruption is found before
// anything is loaded.
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/train/TrainModel.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// Where a run stands between two steps.
struct TrainPosition {
  uint64_t step = 0;       ///< steps done
  uint64_t tokens = 0;     ///< unmasked tokens trained on
  uint64_t dataCursor = 0; ///< the next sample's k
  int64_t seed = 0;
};

struct CheckpointFile {
  std::string name; ///< plain, within the checkpoint
  uint64_t bytes = 0;
  uint64_t hash = 0; ///< XXH3-64
};

struct CheckpointManifest {
  TrainPosition position;
  std::string programHash;
  std::string compilerVersion;
  std::string modelConfig;
  std::string recipe; ///< as resolved for the run, --set included
  std::vector<CheckpointFile> files;
};

/// State leaves and enters the device through one buffer of at most so many
/// bytes, so that a checkpoint costs no second copy of a tensor.
inline constexpr uint64_t kCheckpointPiece = uint64_t(1) << 20;

/// "step-000100".
std::string checkpointName(uint64_t step);

/// Writes the model's whole state as RUN/step-…, then removes all but the
/// newest `keep` checkpoints (0: keeps all) and the one called `kept` (empty:
/// none). A directory that already has the
/// name is a damaged one that resuming stepped over; it is replaced. On an
/// error no earlier checkpoint has been touched.
Status saveCheckpoint(FileOperations &files, const std::string &run,
                      TrainModel &model, const TrainPosition &position,
                      const std::string &recipe, uint64_t keep,
                      std::string_view kept = {});

/// Removes checkpoints of later steps.
Status removeNewerCheckpoints(FileOperations &files, const std::string &run,
                              uint64_t step);

/// Names of RUN's checkpoints, newest first. An unreadable RUN is an error, an
/// absent one has none.
StatusOr<std::vector<std::string>> listCheckpoints(const std::string &run);

/// Reads a checkpoint's manifest and proves it and the size and hash of every
/// file it names.
StatusOr<CheckpointManifest> verifyCheckpoint(const std::string &directory);

/// Copies a verified checkpoint into the model's state. `parametersOnly` leaves
/// moments and counters alone (generation). A checkpoint of another model is
/// refused with the first field in which the two differ, and the state is then
/// unchanged.
Status loadCheckpoint(const std::string &directory,
                      const CheckpointManifest &manifest, TrainModel &model,
                      bool parametersOnly = false);

struct ResumedCheckpoint {
  std::string name;
  CheckpointManifest manifest;
  /// One line for every newer checkpoint that was damaged.
  std::vector<std::string> skipped;
};

/// Loads the newest checkpoint that is intact; nothing if RUN has none. If it
/// has some and all are damaged, or the newest intact one belongs to another
/// model, that is an error.
StatusOr<std::optional<ResumedCheckpoint>>
resumeNewest(const std::string &run, TrainModel &model,
             bool parametersOnly = false);

/// The first difference of two config.json: "n_layer is 12 there and 6 here";
/// empty if they say the same.
std::string configDifference(const std::string &there, const std::string &here);

} // namespace tessera
