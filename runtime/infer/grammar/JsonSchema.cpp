#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/SchemaReader.h"

#include <cstdlib>

namespace tessera::grammar {

/// Values in all, itself among them, and bytes of texts.
static size_t sizeOf(const JsonValue &value, size_t &bytes) {
  size_t size = 1;
  if (std::string_view text; value.get(text))
    bytes += text.size();
  for (const JsonValue &each : value.elements())
    size += sizeOf(each, bytes);
  for (const auto &[name, member] : value.members()) {
    bytes += name.size();
    size += sizeOf(member, bytes);
  }
  return size;
}

StatusOr<Grammar> grammarOfJsonSchema(const JsonValue &schema) {
  // Names are looked for one after another.
  constexpr size_t kMaxValues = 20'000;
  size_t bytes = 0, size = sizeOf(schema, bytes);
  if (size > kMaxValues || bytes > Grammar::kMaxNodes)
    return Status::error("#: the schema is too large: {} values with {} bytes "
                         "of text, at most {} with {}",
                         size, bytes, kMaxValues, Grammar::kMaxNodes);
  Grammar grammar;
  TESSERA_RETURN_IF_ERROR(SchemaReader(schema, grammar).read());
  return grammar;
}

Grammar grammarOfJsonObject() {
  Grammar grammar;
  uint32_t start = grammar.startOf(grammar.addRule()), end = grammar.addNode();
  uint32_t value = grammar.addNode();
  grammar.addSkip(start, value);
  grammar.addBytes(start, ' ', ' ', value);
  grammar.setFinal(end);
  JsonText json(grammar);
  grammar.addCall(value, json.anyObject(), end);
  if (Status status = grammar.finish(); !status.ok())
    std::abort(); // the same grammar each time, which has finite texts
  return grammar;
}

} // namespace tessera::grammar
