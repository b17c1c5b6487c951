// UNSHARD and RESHARD: which stages' parameters a rank holds gathered when.
#pragma once
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// Puts UNSHARD and RESHARD into the list of one rank so that each stage is
/// gathered where it computes and never more than `most` stages are. When there
/// is no room, that stage goes whose next use is furthest away, which gathers
/// least often (Belady 1966). Fails if an instruction needs more than `most`.
Status gatherParameters(InstructionList &list, int most);

} // namespace tessera::pipeline
