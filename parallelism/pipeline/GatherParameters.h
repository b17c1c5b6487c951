// UNSHARD and RESHARD: when a rank holds the gathered parameters of a stage.
#pragma once
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// Puts UNSHARD and RESHARD into the list of one rank so that each stage is
/// gathered where it computes and never more than `most` stages are. If that
/// limit is reached, the stage whose next use is furthest away is evicted,
/// which gathers least often (Belady 1966). An error if an instruction needs
/// more than `most`.
Status gatherParameters(InstructionList &list, int most);

} // namespace tessera::pipeline
