// What commands share in which a model reads a packed dataset.
#pragma once
#include "compiler/api/OpenedModel.h"
#include "runtime/generate/ShardDocuments.h"
#include "tools/tessera/CacheOptions.h"

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace tessera {

struct ScoringArguments {
  std::string dataset;
  ModelChoice model;
  int64_t batch = 64; ///< tokens of a decode step
  uint64_t cacheGib = kCacheGib;
};

/// `modelHelp` says which model is meant.
void addScoringOptions(CLI::App &command, ScoringArguments &arguments,
                       const std::string &modelHelp);

/// Calls `score` with a model that has the dataset's tokenizer, and prints what
/// it did: "DATASET: WHAT of 900 tokens in 20 documents by MODEL, 1.0 s".
/// `command` is named in errors: "data reference".
Status scoreDataset(
    ScoringArguments &arguments, const std::string &command,
    const std::string &what,
    const std::function<Status(PagedModel &, const ReportDocuments &)> &score);

} // namespace tessera
