// JSON Schema (draft 2020-12) as a grammar of the JSON that it allows. Objects
// have their properties in the schema's order, then additional ones, whose
// names may repeat. Between JSON tokens comes nothing, a space, or a new line
// with up to 64 spaces.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/infer/grammar/Grammar.h"

#include <span>
#include <string>
#include <string_view>

namespace tessera::grammar {

/// Supported: true, {}, type (one or a list), properties, required,
/// additionalProperties, items, prefixItems, minItems, maxItems, minLength,
/// maxLength, pattern (StringPattern.h), minimum and maximum, also exclusive,
/// enum, const, anyOf, allOf of one, $ref into the schema itself; of strings
/// without lengths or pattern also format, if StringPattern supports it.
/// Ignored: title, description, default, examples, deprecated, readOnly,
/// writeOnly, any other format, $schema, $id, $comment, $defs, definitions. Any
/// other keyword is an error that names it and its location ("#/properties/a:
/// …"): a constraint is enforced or rejected.
StatusOr<Grammar> grammarOfJsonSchema(const JsonValue &schema);

/// A value of a schema with fixed strings around it.
struct SchemaFrame {
  std::string name; ///< prefix of errors, before the path in the schema
  std::string before;
  const JsonValue *schema; ///< see grammarOfJsonSchema
  std::string after;
};

/// Strings around all frames, and, unless it is empty, between two.
struct FramesAround {
  std::string before, between, after;
  /// Any string may precede `before`, or replace the whole output; after
  /// `before` only the rest may follow.
  bool isOptional = false;
  std::string opening = {}; ///< once, after `before`
};

/// One of the frames; with `between`, one or more of them. If they are
/// optional, `before` must not be empty.
StatusOr<Grammar> grammarOfFrames(std::span<const SchemaFrame> frames,
                                  const FramesAround &around);

/// Any JSON object.
Grammar grammarOfJsonObject();

} // namespace tessera::grammar
