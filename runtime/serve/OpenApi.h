// The description of the API that /openapi.json gives, made from the lists that
// requests are read by: routes() and apiFields().
#pragma once
#include <string>

namespace tessera::serve {

/// An OpenAPI 3.1 document of a server of this model.
std::string openApiJson(const std::string &version, const std::string &model);

} // namespace tessera::serve
