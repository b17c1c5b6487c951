// Writes /openapi.json from the lists by which requests are read: routes(),
// apiFields() and embeddingsFields().
#pragma once
#include "runtime/serve/Routes.h"

#include <span>
#include <string>

namespace tessera::serve {

/// JSON schemas of requests and responses besides the lists of fields.
std::string_view openApiSchemas();

/// An OpenAPI 3.1 document for a model with these names.
std::string openApiJson(const std::string &version,
                        std::span<const std::string> models, ModelKind kind);

} // namespace tessera::serve
