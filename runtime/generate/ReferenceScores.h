// Log-probabilities of packed documents by a reference model, which DPO
// compares with.
#pragma once
#include "runtime/generate/ShardDocuments.h"

namespace tessera {

/// Scores every document of `folder` alone and writes a ReferenceShard for each
/// of its shards. Training that needs them refuses the folder if some shards
/// have none.
Status scoreReference(const std::string &folder, PagedModel &model,
                      const ReportDocuments &report);

} // namespace tessera
