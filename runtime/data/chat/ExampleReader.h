// The lines of .jsonl files, read in batches.
#pragma once
#include "runtime/support/MappedFile.h"
#include "runtime/support/Status.h"

#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

/// A line that is not blank. The text lives as long as the reader.
struct ExampleLine {
  std::string_view text;
  uint64_t number = 0; ///< in the file, from 1
};

/// Reads one file from its begin to its end in constant memory.
class ExampleReader {
public:
  static StatusOr<ExampleReader> open(const std::string &path);

  /// Replaces `lines` by the next ones: at most `most`, and about `bytes` of
  /// text. None at the end.
  void next(size_t most, size_t bytes, std::vector<ExampleLine> &lines);

private:
  explicit ExampleReader(MappedFile file) : file(std::move(file)) {}
  MappedFile file;
  size_t at = 0, released = 0;
  uint64_t number = 0;
};

/// The lines of a file that are not blank.
StatusOr<uint64_t> countLines(const std::string &path);

} // namespace tessera::chat
