// The dumps of --dump-ir, and how each differs from the phase before.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/report/Json.h"
#include "runtime/support/Status.h"

namespace tessera::report {

struct IrPhase {
  std::string file; ///< "05-fusion.mlir"
  std::string text; ///< without locations
};

/// The dumps in a directory, in order of their phases. An error if there is
/// none.
StatusOr<std::vector<IrPhase>> readPhases(const std::string &directory);

/// A module without its locations: they are half of a dump and seldom what is
/// looked for.
std::string withoutLocations(std::string_view text);

/// A key for each line; numbers of values do not count, so that an op inserted
/// at the top does not change every line below.
std::vector<std::uint64_t> lineKeys(std::string_view text);

/// [{"file":…,"before":…,"lines":…,"text":…,"diff":[keep, remove, add, …]}].
/// They are compressed (zlib, base64). The longest are left out if all together
/// would be larger than `mostBytes`.
Json phasesJson(const std::vector<IrPhase> &phases,
                std::size_t mostBytes = std::size_t(3) << 20);

} // namespace tessera::report
