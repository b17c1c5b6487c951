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

} // namespace tessera
