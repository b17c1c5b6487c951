// Log-probabilities of packed documents by a reference model, which DPO
// compares with.
#pragma once
#include "runtime/data/PackedIndex.h"
#include "runtime/infer/PagedModel.h"

#include <functional>

namespace tessera {

struct ReferenceProgress {
  uint64_t documents = 0, ofDocuments = 0;
};

/// Scores every document of `folder` alone and writes a ReferenceShard for each
/// of its shards. Earlier ones are removed first. `report` is called now and
/// then. After an error some shards have none, and training that needs them
/// refuses the folder.
Status
scoreReference(const std::string &folder, PagedModel &model,
               const std::function<void(const ReferenceProgress &)> &report);

} // namespace tessera
