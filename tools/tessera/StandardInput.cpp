#include "tools/tessera/StandardInput.h"
#include "runtime/data/chat/Example.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

using namespace tessera;

StatusOr<bool> StandardInput::next(std::string &line) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  line.clear();
  ++count;
  int byte = 0;
  while ((byte = ::getc_unlocked(stdin)) != EOF && byte != '\n') {
    line += char(byte);
    if (line.size() > chat::maxLineBytes)
      return Status::error("{}:{}: a line is too long; up to {} bytes are "
                           "supported",
                           kName, count, chat::maxLineBytes);
  }
  if (std::ferror(stdin))
    return Status::error("cannot read {}: {}", kName, std::strerror(errno));
  if (byte == EOF && line.empty())
    return false;
  if (line.ends_with('\r'))
    line.pop_back();
  if (count == 1 && line.starts_with(kMark))
    line.erase(0, kMark.size());
  return true;
}

StatusOr<std::vector<std::string>> TextSource::next(std::size_t most) {
  std::vector<std::string> some;
  if (!inputs.empty()) {
    const std::size_t end = std::min(inputs.size(), at + most);
    some.assign(inputs.begin() + long(at), inputs.begin() + long(end));
    at = end;
    return some;
  }
  std::string line;
  while (some.size() < most) {
    auto read = input.next(line);
    if (!read.ok())
      return read.status();
    if (!*read)
      break;
    some.push_back(std::move(line));
  }
  return some;
}
