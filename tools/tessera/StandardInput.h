// Standard input by lines.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <string>
#include <vector>

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

/// Strings of the command line or, if there are none, the lines of standard
/// input.
class TextSource {
public:
  explicit TextSource(const std::vector<std::string> &inputs)
      : inputs(inputs) {}
  /// The next `most` at most; none at the end.
  StatusOr<std::vector<std::string>> next(std::size_t most);

private:
  const std::vector<std::string> &inputs;
  std::size_t at = 0;
  StandardInput input;
};

} // namespace tessera
