// What JSON Schema (draft 2020-12) allows, as a grammar of the texts that it
// allows. Objects have their properties in the schema's order and further ones
// behind them, whose names may repeat; between tokens stands nothing, a space,
// or a new line with up to 64 spaces.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/infer/grammar/Grammar.h"

#include <string>

namespace tessera::grammar {

/// Served: true, {}, type (one or a list), properties, required,
/// additionalProperties, items, prefixItems, minItems, maxItems, minLength,
/// maxLength, minimum and maximum of integers, also exclusive, enum, const,
/// anyOf, allOf of one, $ref into the schema itself. Read over: title,
/// description, default, examples, deprecated, readOnly, writeOnly, format,
/// $schema, $id, $comment, $defs, definitions. Any other keyword is an error
/// that names it and its place ("#/properties/a: …"): what is asked for is
/// kept, or refused.
StatusOr<Grammar> grammarOfJsonSchema(const JsonValue &schema);

/// Any JSON object.
Grammar grammarOfJsonObject();

} // namespace tessera::grammar
