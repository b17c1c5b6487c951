// What JSON Schema (draft 2020-12) allows, as a grammar of the texts that it
// allows. Objects have their properties in the schema's order and further ones
// behind them, whose names may repeat; between tokens stands nothing, a space,
// or a new line with up to 64 spaces.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/infer/grammar/Grammar.h"

#include <span>
#include <string>
#include <string_view>

namespace tessera::grammar {

/// Served: true, {}, type (one or a list), properties, required,
/// additionalProperties, items, prefixItems, minItems, maxItems, minLength,
/// maxLength, pattern (StringPattern.h), minimum and maximum, also exclusive,
/// enum, const, anyOf, allOf of one, $ref into the schema itself; of
/// strings without lengths or pattern format, if it is one that StringPattern
/// knows. Read over: title, description, default, examples, deprecated,
/// readOnly, writeOnly, any other format, $schema, $id, $comment, $defs,
/// definitions. Any other keyword is an error that names it and its place
/// ("#/properties/a: …"): what is asked for is kept, or refused.
StatusOr<Grammar> grammarOfJsonSchema(const JsonValue &schema);

/// A value of a schema with texts around it.
struct SchemaFrame {
  std::string name; ///< begins errors, whose paths begin in the schema
  std::string before;
  const JsonValue *schema; ///< as of grammarOfJsonSchema
  std::string after;
};

/// Around all frames, and, unless it is empty, between two.
struct FramesAround {
  std::string before, between, after;
  /// Any text may stand before `before`, or instead of all of it; behind
  /// `before` nothing else than the rest may.
  bool isOptional = false;
  std::string opening = {}; ///< once, behind `before`
};

/// One of the frames; with `between` any number of them, from one on. What is
/// optional must not begin with nothing.
StatusOr<Grammar> grammarOfFrames(std::span<const SchemaFrame> frames,
                                  const FramesAround &around);

/// Any JSON object.
Grammar grammarOfJsonObject();

} // namespace tessera::grammar
