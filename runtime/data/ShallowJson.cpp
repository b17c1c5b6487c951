#include "runtime/data/ShallowJson.h"

namespace tessera {

nlohmann::json parseShallowJson(std::string_view text) {
  using nlohmann::json;
  constexpr int kMaxDepth = 32;
  bool tooDeep = false;
  auto check = [&](int depth, json::parse_event_t, json &) {
    tooDeep |= depth > kMaxDepth;
    return !tooDeep;
  };
  json value = json::parse(text, check, /*allow_exceptions=*/false);
  return tooDeep ? json(json::value_t::discarded) : value;
}

std::string shownName(std::string_view name) {
  constexpr std::size_t kMost = 120;
  std::string text = nlohmann::json(name.substr(0, kMost))
                         .dump(-1, ' ', /*ensure_ascii=*/true,
                               nlohmann::json::error_handler_t::replace);
  text.front() = text.back() = '\'';
  if (name.size() > kMost)
    text += "…";
  return text;
}

} // namespace tessera
