// JSON of a report's page.
#pragma once
#include <nlohmann/json.hpp>

namespace tessera::report {

/// Keys keep their order, so that equal reports have equal bytes.
using Json = nlohmann::ordered_json;

} // namespace tessera::report
