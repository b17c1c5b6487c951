// The description of the API that /openapi.json gives, made from the lists that
// requests are read by: routes() and apiFields().
#pragma once
#include <string>

namespace tessera::serve {

/// An OpenAPI 3.1 document.
std::string openApiJson(const std::string &version);

} // namespace tessera::serve
