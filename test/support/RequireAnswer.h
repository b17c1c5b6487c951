// What every fuzzed reader owes: a result, or one line that says why not.
#pragma once
#include "runtime/support/Status.h"

#include <cstdlib>

namespace tessera::testing {

template <typename T> void requireAnswer(const StatusOr<T> &result) {
  if (!result.ok() && (result.message().empty() ||
                       result.message().find('\n') != std::string::npos))
    std::abort();
}

} // namespace tessera::testing
