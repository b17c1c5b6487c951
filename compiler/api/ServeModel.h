// Serves a run or another model: what `tessera serve` does after its options
// are parsed.
#pragma once
#include "compiler/api/AdapterSettings.h"
#include "compiler/api/OpenedModel.h"
#include "compiler/api/ServeTraining.h"
#include "runtime/serve/Serve.h"
#include "runtime/weights/WeightCache.h"

namespace tessera {

struct ServeSettings {
  ModelChoice choice; ///< without ranks, phases and notes
  serve::ServeOptions serve;
  std::string draft; ///< the model that proposes tokens; empty: none
  AdapterSettings adapters;
  TrainingSettings training;
  uint64_t keptBytes = WeightCache::kMostBytes; ///< of the weight cache
  TextSink note; ///< required: a line for the user
};

/// Takes the address, opens the model and serves it until a signal. All ranks
/// of a mesh call it (`ranks`, or null), and the first one serves. Errors come
/// before anything is compiled if they can.
Status serveModel(ServeSettings &settings, InferenceRanks *ranks);

} // namespace tessera
