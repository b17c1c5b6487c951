// The description of the API that /openapi.json gives, made from the lists that
// requests are read by: routes(), apiFields() and embeddingsFields().
#pragma once
#include "runtime/serve/Routes.h"

#include <span>
#include <string>

namespace tessera::serve {

/// JSON of what requests and answers have besides lists of fields.
std::string_view openApiSchemas();

/// An OpenAPI 3.1 document of a server of a model with these names.
std::string openApiJson(const std::string &version,
                        std::span<const std::string> models, ModelKind kind);

} // namespace tessera::serve
