#include "hardware/Quantity.h"

#include <charconv>
#include <cmath>
#include <span>

#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

constexpr Suffix prefixes[] = {
    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"k", 1e3},
    {"M", 1e6},     {"G", 1e9},     {"T", 1e12},    {"P", 1e15},    {"", 1}};

constexpr Suffix bytes[] = {{"B", 1}};
constexpr Suffix rates[] = {{"B/s", 1}, {"b/s", 0.125}, {"bit/s", 0.125}};
constexpr Suffix flops[] = {{"FLOP/s", 1}};
constexpr Suffix times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                            {"min", 60},  {"h", 3600},  {"d", 86400}};
constexpr double largest = 1e24;

struct UnitInfo {
  std::span<const Suffix> suffixes;
  bool prefixed;
  std::string_view example;
};

UnitInfo infoOf(Unit unit) {
  static constexpr Suffix none[] = {{"", 1}};
  switch (unit) {
  case Unit::Count:
    return {none, true, "1e12 or 1T"};
  case Unit::Bytes:
    return {bytes, true, "80GiB or 80GB"};
  case Unit::BytesPerSecond:
    return {rates, true, "25GB/s or 200Gb/s"};
  case Unit::Seconds:
    return {times, false, "2s, 10min or 8.2d"};
  case Unit::FlopsPerSecond:
    return {flops, true, "312TFLOP/s"};
  }
  return {none, false, ""};
}

/// The factor of "GB/s"; 0 if it is not a unit of bandwidth.
double factorOf(std::string_view suffix, const UnitInfo &info) {
  for (const Suffix &unit : info.suffixes) {
    if (!suffix.ends_with(unit.text))
      continue;
    std::string_view prefix =
        suffix.substr(0, suffix.size() - unit.text.size());
    if (!info.prefixed) {
      if (prefix.empty())
        return unit.factor;
      continue;
    }
    for (const Suffix &each : prefixes)
      if (prefix == each.text)
        return each.factor * unit.factor;
  }
  return 0;
}

std::string scaled(double value, std::string_view unit, double base) {
  constexpr std::string_view names[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t step = 0;
  while (step + 1 < std::size(names) && std::abs(value) >= 0.9995 * base) {
    value /= base;
    ++step;
  }
  return fmt::format("{:.{}f} {}{}", value, value < 10 ? 2 : 1, names[step],
                     unit);
}

} // namespace

StatusOr<double> parseQuantity(std::string_view text, Unit unit) {
  UnitInfo info = infoOf(unit);
  double value = 0;
  auto [end, problem] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || !std::isfinite(value))
    return Status::error("{} is not a valid quantity; write it like {}",
                         quote(text), info.example);
  std::string_view suffix = text.substr(size_t(end - text.data()));
  while (suffix.starts_with(' '))
    suffix.remove_prefix(1);
  double factor = factorOf(suffix, info);
  if (factor == 0)
    return Status::error("{} has {}; write it like {}", quote(text),
                         suffix.empty() ? "no unit" : "an unknown unit",
                         info.example);
  value *= factor;
  if (!(value > 0) || value > largest)
    return Status::error("{} must be more than 0 and at most {}", quote(text),
                         largest);
  return value;
}

std::string formatBytes(double value) { return scaled(value, "B", 1000); }
std::string formatRate(double value) { return scaled(value, "B/s", 1000); }

std::string formatSeconds(double seconds) {
  if (seconds >= 2 * 86400)
    return fmt::format("{:.1f} days", seconds / 86400);
  if (seconds >= 2 * 3600)
    return fmt::format("{:.1f} h", seconds / 3600);
  if (seconds >= 120)
    return fmt::format("{:.1f} min", seconds / 60);
  if (seconds >= 1)
    return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3)
    return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

} // namespace tessera::planner
