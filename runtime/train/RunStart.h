// Where a run begins: with weights from a seed, from a directory or from the
// newest checkpoint, and with the recipe that follows from it.
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/train/Train.h"

#include <functional>
#include <optional>
#include <string>

namespace tessera {

/// Of a run, besides its weights.
struct RunState {
  RunRecipe recipe;
  std::string recipeText; ///< of startOrResume; checkpoints and the run have it
  uint64_t lastStep = 0;  ///< that the run is to reach
  TrainPosition position;
  std::optional<uint64_t> savedStep; ///< of the newest checkpoint
  std::string promoted; ///< name of the checkpoint; empty: none yet
};

/// Prints a line for the user.
using SayLine = std::function<void(const std::string &line)>;

/// The state before the first step: the program's recipe with what the command
/// line sets. A key that is unknown or compiled in is an error.
StatusOr<RunState> initialState(const ModelFacts &facts,
                                const TrainOptions &options);

/// Sets the model's weights, and restores recipe and position of a checkpoint.
/// A directory that has checkpoints must be resumed, and one that began from
/// weights needs them until it has one.
Status startOrResume(RunState &state, TrainModel &model,
                     const TrainOptions &options, FileOperations &files,
                     const SayLine &say);

/// Writes into the run directory what generation, or resuming elsewhere, needs:
/// recipe, tokenizer, chat template and program. Another tokenizer than that of
/// a resumed run is an error.
Status copyIntoRun(const RunState &state, const BatchSource &source,
                   const TrainOptions &options, FileOperations &files);

} // namespace tessera
