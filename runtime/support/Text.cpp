// Reading, quoting and suggesting.
#include "runtime/support/Text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace tessera {

StatusOr<std::string> readTextFile(const std::string &path, int64_t maxBytes) {
  std::error_code failure;
  std::filesystem::file_status kind = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(kind))
    return Status::error("{}: {}", path,
                         failure ? failure.message() : "no such file");
  // A pipe or device could block or never end.
  if (!std::filesystem::is_regular_file(kind))
    return Status::error("{}: is not a regular file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Status::error("{}: cannot be opened: {}", path,
                         std::strerror(errno));
  // One byte past the bound tells too long from just fitting.
  constexpr std::streamsize piece = 1 << 20;
  const auto most = static_cast<size_t>(maxBytes);
  std::string text;
  while (file && text.size() <= most) {
    const size_t seen = text.size();
    text.resize(std::min(most + 1, seen + piece));
    file.read(text.data() + seen,
              static_cast<std::streamsize>(text.size() - seen));
    text.resize(seen + static_cast<size_t>(file.gcount()));
  }
  if (file.bad())
    return Status::error("{}: cannot be read: {}", path, std::strerror(errno));
  if (text.size() > most)
    return Status::error("{}: larger than {} bytes, which no such file is; "
                         "check the path",
                         path, maxBytes);
  return text;
}

std::string oneLine(std::string_view text, size_t limit) {
  std::string result;
  for (char each : text.substr(0, limit)) {
    auto byte = static_cast<unsigned char>(each);
    if (byte < 0x20 || byte == 0x7f)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += each;
  }
  if (text.size() > limit) {
    // Not through the middle of a UTF-8 sequence.
    auto last = [&] {
      return result.empty() ? 0u : static_cast<unsigned char>(result.back());
    };
    while ((last() & 0xc0) == 0x80)
      result.pop_back();
    if (last() >= 0xc0)
      result.pop_back();
    result += "...";
  }
  return result;
}

std::string quote(std::string_view text) { return "'" + oneLine(text) + "'"; }

bool isUtf8(std::string_view text) {
  // Unicode 15, table 3-7: the lead byte bounds the first continuation byte.
  for (size_t i = 0; i < text.size();) {
    auto at = [&](size_t k) -> unsigned {
      return k < text.size() ? static_cast<unsigned char>(text[k]) : 0;
    };
    unsigned lead = at(i);
    unsigned least = 0x80, most = 0xbf;
    size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4)
      return false;
    if (lead == 0xe0)
      least = 0xa0;
    if (lead == 0xed)
      most = 0x9f;
    if (lead == 0xf0)
      least = 0x90;
    if (lead == 0xf4)
      most = 0x8f;
    for (size_t k = 1; k < length; ++k, least = 0x80, most = 0xbf)
      if (at(i + k) < least || at(i + k) > most)
        return false;
    i += length;
  }
  return true;
}

namespace {

/// Levenshtein distance in two rows.
size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

} // namespace

std::string suggestion(std::string_view word,
                       std::span<const std::string_view> candidates) {
  // Hostile keys may be long; no slip of the finger is.
  if (word.size() > 64)
    return "";
  std::string_view best;
  size_t bestDistance = std::max<size_t>(1, word.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    size_t distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      bestDistance = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format(", did you mean '{}'?", best);
}

std::string choices(std::span<const std::string_view> words) {
  std::string result;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0)
      result += i + 1 == words.size() ? " or " : ", ";
    result += words[i];
  }
  return result;
}

} // namespace tessera
