// Any schema is read in bounded time and memory, and what its masks allow can
// be taken.
#include "runtime/infer/grammar/JsonSchema.h"
#include "test/runtime/infer/grammar/WalkForm.h"

using namespace tessera;
using namespace tessera::grammar;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const auto tokens =
      bytesAnd({"{\"", "\":", "\",\"", "[[", "]]", "}}", "true", "12"});
  std::string_view text(reinterpret_cast<const char *>(data), size);
  auto schema = JsonValue::parse(text, "schema");
  if (!schema.ok())
    return 0;
  auto grammar = grammarOfJsonSchema(*schema);
  if (!grammar.ok())
    return 0;
  walk(grammar.take(), tokens, data, size);
  return 0;
}
