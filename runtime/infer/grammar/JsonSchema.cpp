#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/SchemaReader.h"

#include <cstdlib>

namespace tessera::grammar {

/// The number of values, including itself; adds the bytes of strings to
/// `bytes`.
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

/// `size` and `bytes` are those of earlier schemas of the same grammar.
static Status checkSize(const JsonValue &schema, size_t &size, size_t &bytes) {
  // Names are searched linearly.
  constexpr size_t kMaxValues = 20'000;
  size += sizeOf(schema, bytes);
  if (size > kMaxValues || bytes > Grammar::kMaxNodes)
    return Status::error("#: the schema is too large: {} values with {} bytes "
                         "of strings; the limits are {} and {}",
                         size, bytes, kMaxValues, Grammar::kMaxNodes);
  return Status::success();
}

/// The beginning of the output: an optional space, which tokenizers need whose
/// first token begins with one.
static uint32_t addBeginning(Grammar &grammar) {
  uint32_t start = grammar.startOf(grammar.addRule());
  uint32_t first = grammar.addNode();
  grammar.addSkip(start, first);
  grammar.addBytes(start, ' ', ' ', first);
  return first;
}

StatusOr<Grammar> grammarOfJsonSchema(const JsonValue &schema) {
  size_t size = 0, bytes = 0;
  TESSERA_RETURN_IF_ERROR(checkSize(schema, size, bytes));
  Grammar grammar;
  auto end = SchemaReader(schema, grammar).addTo(addBeginning(grammar));
  if (!end.ok())
    return end.status();
  grammar.setFinal(*end);
  TESSERA_RETURN_IF_ERROR(grammar.finish());
  return grammar;
}

/// Any string, which may end anywhere, up to the first `tag`; returns the node
/// after it. (Knuth, Morris and Pratt 1977: node i has matched i bytes of the
/// tag.)
static uint32_t addAnythingUntil(Grammar &grammar, uint32_t from,
                                 std::string_view tag) {
  std::vector<uint32_t> nodes = {grammar.addNode()};
  grammar.addSkip(from, nodes[0]);
  while (nodes.size() <= tag.size())
    nodes.push_back(grammar.addNode());
  for (size_t i = 0; i < tag.size(); ++i) {
    grammar.setFinal(nodes[i]);
    for (unsigned byte = 0; byte < 256; ++byte) {
      // The longest suffix of the input that is a prefix of the tag.
      std::string read(tag.substr(0, i));
      read += char(byte);
      while (!tag.starts_with(read))
        read.erase(0, 1);
      grammar.addBytes(nodes[i], uint8_t(byte), uint8_t(byte),
                       nodes[read.size()]);
    }
  }
  return nodes.back();
}

StatusOr<Grammar> grammarOfFrames(std::span<const SchemaFrame> frames,
                                  const FramesAround &around) {
  Grammar grammar;
  if (around.isOptional && around.before.empty())
    return Status::error("optional frames need a string before them");
  uint32_t start = addBeginning(grammar);
  uint32_t first = around.isOptional
                       ? addAnythingUntil(grammar, start, around.before)
                       : grammar.addText(start, around.before);
  first = grammar.addText(first, around.opening);
  uint32_t last = grammar.addNode();
  size_t size = 0, bytes = 0;
  for (const SchemaFrame &frame : frames) {
    TESSERA_RETURN_IF_ERROR(checkSize(*frame.schema, size, bytes));
    auto end = SchemaReader(*frame.schema, grammar)
                   .addTo(grammar.addText(first, frame.before));
    if (!end.ok())
      return Status::error("{}{}", frame.name, end.message());
    grammar.addSkip(grammar.addText(*end, frame.after), last);
  }
  if (!around.between.empty())
    grammar.addSkip(grammar.addText(last, around.between), first);
  grammar.setFinal(grammar.addText(last, around.after));
  TESSERA_RETURN_IF_ERROR(grammar.finish());
  return grammar;
}

Grammar grammarOfJsonObject() {
  Grammar grammar;
  uint32_t value = addBeginning(grammar), end = grammar.addNode();
  grammar.setFinal(end);
  JsonText json(grammar);
  grammar.addCall(value, json.anyObject(), end);
  if (Status status = grammar.finish(); !status.ok())
    std::abort(); // a constant grammar
  return grammar;
}

} // namespace tessera::grammar
