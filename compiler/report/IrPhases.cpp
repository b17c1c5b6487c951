#include "compiler/report/IrPhases.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

#include <zlib.h>

#include "compiler/report/LineDiff.h"
#include "runtime/support/Text.h"

namespace tessera::report {

static constexpr std::int64_t kMostDumpBytes = std::int64_t(256) << 20;

namespace {

bool isDump(const std::string &name) {
  return name.size() > 8 && std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::isdigit(static_cast<unsigned char>(name[1])) && name[2] == '-' &&
         name.ends_with(".mlir");
}

/// "cuda-sm_80" of "08-kernels.cuda-sm_80.mlir".
std::string_view variantOf(std::string_view file) {
  file.remove_suffix(std::string_view(".mlir").size());
  const auto dot = file.find('.');
  return dot == file.npos ? std::string_view() : file.substr(dot + 1);
}

std::string base64(std::string_view bytes) {
  static constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group =
          group << 8 | (i + k < bytes.size() ? std::uint8_t(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : digits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

std::string compressed(const std::string &text) {
  uLongf size = compressBound(uLong(text.size()));
  std::string bytes(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef *>(bytes.data()), &size,
                             reinterpret_cast<const Bytef *>(text.data()),
                             uLong(text.size()), Z_BEST_COMPRESSION);
  bytes.resize(code == Z_OK ? size : 0);
  return bytes;
}

/// Where the parenthesis at `open` closes; npos if it does not.
std::size_t closeOf(std::string_view text, std::size_t open) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else
        quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && --depth == 0) {
      return i;
    }
  }
  return text.npos;
}

std::string lineWithoutLocations(std::string_view line) {
  constexpr std::string_view start = " loc(";
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '\\' && i + 1 < line.size()) {
      result += c;
      result += line[++i];
      continue;
    }
    if (c == '"')
      quoted = !quoted;
    if (!quoted && line.substr(i).starts_with(start))
      if (const std::size_t end = closeOf(line, i + start.size() - 1);
          end != line.npos) {
        i = end;
        continue;
      }
    result += c;
  }
  return result;
}

/// The phase before: the last one of the same variant, or else of none.
std::size_t previousOf(const std::vector<IrPhase> &phases, std::size_t at) {
  const std::string_view number(phases[at].file.data(), 2),
      variant = variantOf(phases[at].file);
  std::size_t best = phases.size();
  for (std::size_t i = 0; i < at; ++i) {
    const std::string_view other = variantOf(phases[i].file);
    if (phases[i].file.starts_with(number) ||
        (other != variant && !other.empty()))
      continue;
    if (best == phases.size() ||
        phases[i].file.substr(0, 2) > phases[best].file.substr(0, 2) ||
        other == variant)
      best = i;
  }
  return best;
}

} // namespace

StatusOr<std::vector<IrPhase>> readPhases(const std::string &directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto &entry :
       std::filesystem::directory_iterator(directory, error))
    if (isDump(entry.path().filename().string()))
      files.push_back(entry.path().filename().string());
  if (error)
    return Status::error("--ir {}: {}", quote(directory), error.message());
  if (files.empty())
    return Status::error("--ir {}: no dumps; make them with tessera compile "
                         "--dump-ir=DIR",
                         quote(directory));
  std::ranges::sort(files);
  std::vector<IrPhase> phases;
  for (const std::string &file : files) {
    auto text = readTextFile(directory + "/" + file, kMostDumpBytes);
    if (!text.ok())
      return text.status();
    phases.push_back({file, withoutLocations(*text)});
  }
  return phases;
}

std::string withoutLocations(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!line.starts_with("#loc"))
      result += lineWithoutLocations(line) + "\n";
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return result;
}

std::vector<std::uint64_t> lineKeys(std::string_view text) {
  std::vector<std::uint64_t> keys;
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  std::uint64_t hash = kOffset; // FNV-1a
  bool inValue = false;
  for (const char c : text) {
    if (c == '\n') {
      keys.push_back(hash);
      hash = kOffset;
      inValue = false;
      continue;
    }
    if (inValue && std::isdigit(static_cast<unsigned char>(c)))
      continue;
    inValue =
        c == '%' || (inValue && (std::isalpha(static_cast<unsigned char>(c)) ||
                                 c == '_' || c == '#' || c == ':'));
    hash = (hash ^ std::uint8_t(c)) * kPrime;
  }
  return keys;
}

Json phasesJson(const std::vector<IrPhase> &phases, std::size_t mostBytes) {
  std::vector<std::vector<std::uint64_t>> keys;
  std::vector<std::string> packed;
  std::size_t bytes = 0;
  for (const IrPhase &phase : phases) {
    keys.push_back(lineKeys(phase.text));
    packed.push_back(base64(compressed(phase.text)));
    bytes += packed.back().size();
  }
  while (bytes > mostBytes) {
    std::string &longest = *std::ranges::max_element(
        packed, {}, [](const std::string &text) { return text.size(); });
    bytes -= longest.size();
    longest.clear();
  }
  Json list = Json::array();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    Json phase = {{"file", phases[i].file}, {"lines", keys[i].size()}};
    if (!packed[i].empty())
      phase["text"] = std::move(packed[i]);
    if (const std::size_t before = previousOf(phases, i);
        before < phases.size()) {
      Json diff = Json::array();
      for (const DiffRun &run : diffLines(keys[before], keys[i]))
        for (const std::uint32_t count : {run.keep, run.remove, run.add})
          diff.push_back(count);
      phase["before"] = before;
      phase["diff"] = std::move(diff);
    }
    list.push_back(std::move(phase));
  }
  return list;
}

} // namespace tessera::report
