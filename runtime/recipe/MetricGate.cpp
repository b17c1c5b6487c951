#include "runtime/recipe/MetricGate.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/support/Text.h"

namespace tessera::recipe {

static std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' '))
    text.remove_prefix(1);
  while (text.ends_with(' '))
    text.remove_suffix(1);
  return text;
}

StatusOr<MetricGate> parseMetricGate(std::string_view text) {
  const size_t at = std::min(text.find("<="), text.find(">="));
  if (at == text.npos)
    return Status::error("must be METRIC <= NUMBER or METRIC >= NUMBER, got {}",
                         quote(text));
  const std::string_view name = trimmed(text.substr(0, at)),
                         number = trimmed(text.substr(at + 2));
  const auto *known = std::ranges::find(kGateMetrics, name);
  if (known == kGateMetrics.end())
    return Status::error("unknown metric {}{}; an evaluation has {}",
                         quote(name), suggestion(name, kGateMetrics),
                         choices(kGateMetrics));
  MetricGate gate{*known, text[at] == '>', 0};
  auto [end, code] =
      std::from_chars(number.data(), number.data() + number.size(), gate.bound);
  if (code != std::errc() || end != number.data() + number.size() ||
      !std::isfinite(gate.bound))
    return Status::error("must compare with a number, got {}", quote(text));
  return gate;
}

} // namespace tessera::recipe
