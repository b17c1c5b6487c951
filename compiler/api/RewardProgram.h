// A compiled reward model with its weights, for `tessera score` and `tessera
// rl`.
#pragma once
#include "compiler/api/ModelSource.h"
#include "runtime/data/chat/ChatFormat.h"
#include "runtime/infer/EmbedPrograms.h"

#include <functional>

namespace tessera {

struct OpenedRewardModel {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model; scores
  chat::ChatFormat format;
};

/// Like openModel; an error if the model gives no scores. `check` comes before
/// anything is compiled.
StatusOr<std::unique_ptr<OpenedRewardModel>> openRewardModel(
    const ModelSource &source, const ProgramOptions &asked,
    const GenerateOptions &options,
    const std::function<Status(const chat::ChatFormat &)> &check = {});

} // namespace tessera
