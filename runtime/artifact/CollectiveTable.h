// The ranks and collectives of an artifact, for display.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::artifact {

/// Collectives of a program that differ only in their offsets.
struct CollectiveRow {
  const Collective *first;
  std::uint64_t runs = 0;    ///< in one run of the program, loops unrolled
  std::uint64_t members = 1; ///< of a group
  /// Of one run: the whole tensor that is reduced, gathered or scattered; for
  /// all_to_all and permute what one member sends; for exchange_rows what it
  /// sends if no row is dropped.
  std::uint64_t bytes = 0;
  /// What one member has to send in one run: 2 (n - 1)/n of the bytes for
  /// all_reduce, (n - 1)/n for the others, all for permute.
  double sent = 0;
  /// Overlapped work, between start and wait, in all runs together: launches,
  /// with loops unrolled, and bytes that their arguments span.
  std::uint64_t launches = 0, launchBytes = 0;
};

/// In order of first use.
std::vector<CollectiveRow> collectiveRows(const Artifact &artifact,
                                          const Program &program);

/// The rows as a table, under a line with their sum.
std::string collectiveTable(const Artifact &artifact, const Program &program);

/// "data=2,tensor=4: 8 ranks"
std::string meshText(const Artifact &artifact);

} // namespace tessera::artifact
