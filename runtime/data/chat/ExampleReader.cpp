#include "runtime/data/chat/ExampleReader.h"

#include <algorithm>

namespace tessera::chat {

StatusOr<ExampleReader> ExampleReader::open(const std::string &path) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  return ExampleReader(file.take());
}

void ExampleReader::next(size_t most, size_t bytes,
                         std::vector<ExampleLine> &lines) {
  lines.clear();
  const std::string_view all = file.text();
  const size_t begin = at;
  // The batch before this one is not looked at any more.
  file.release(released, begin - released);
  released = begin;
  while (at < all.size() &&
         (lines.empty() || (lines.size() < most && at - begin < bytes))) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string_view line = all.substr(at, end - at);
    // A byte order mark, which editors put before the first line.
    if (at == 0 && line.starts_with("\xEF\xBB\xBF"))
      line.remove_prefix(3);
    at = std::min(end + 1, all.size());
    ++number;
    if (line.find_first_not_of(" \t\r") != line.npos)
      lines.push_back({line, number});
  }
}

StatusOr<uint64_t> countLines(const std::string &path) {
  StatusOr<ExampleReader> reader = ExampleReader::open(path);
  if (!reader.ok())
    return reader.status();
  std::vector<ExampleLine> lines;
  uint64_t count = 0;
  do {
    reader->next(1 << 16, 64 << 20, lines);
    count += lines.size();
  } while (!lines.empty());
  return count;
}

} // namespace tessera::chat
