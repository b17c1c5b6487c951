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
/// of its shards, in place of earlier ones. `report` is called now and then.
/// After an error the shards that are complete stay, and training refuses the
/// folder until all are.
Status
scoreReference(const std::string &folder, PagedModel &model,
               const std::function<void(const ReferenceProgress &)> &report);

} // namespace tessera
