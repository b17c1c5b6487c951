// Verifies what validation of the tables cannot: that the order of a program's
// steps is correct.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/support/Status.h"

namespace tessera::hal {

/// Steps that checkPlan walks at most by default, loops unrolled.
inline constexpr std::uint64_t kMaxCheckedSteps = 20'000'000;

/// Walks `program`, one of `code`, without running it and reports the first
///   - byte of the arena or io that a step reads and nothing wrote before in
///     this run (the state and the inputs count as written),
///   - pair of instances of one launch of which one writes bytes that the other
///     touches: they run at the same time,
///   - step that touches what a collective in flight writes, or writes what it
///   reads,
///   - output that is not completely written at the end.
/// An argument's whole extent counts as read or written. Programs of more than
/// `maxSteps` steps are refused.
Status checkPlan(const ArtifactReader &artifact,
                 const artifact::DeviceCode &code,
                 const artifact::Program &program,
                 std::uint64_t maxSteps = kMaxCheckedSteps);

} // namespace tessera::hal
