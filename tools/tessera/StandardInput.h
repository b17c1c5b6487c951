// The lines of standard input.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <string>

namespace tessera {

class StandardInput {
public:
  /// Replaces `line` by the next one, without its end, a carriage return before
  /// that, or a byte order mark. False at the end; an error if it cannot be
  /// read or the line is too long.
  StatusOr<bool> next(std::string &line);
  /// Of the last line, from 1.
  uint64_t number() const { return count; }

  static constexpr const char *kName = "standard input";

private:
  uint64_t count = 0;
};

} // namespace tessera
