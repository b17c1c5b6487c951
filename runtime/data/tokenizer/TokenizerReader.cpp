#include "runtime/data/tokenizer/TokenizerReader.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/support/Hash.h"

namespace tessera::tokenizer {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

static constexpr size_t maxFileBytes = 512 << 20;

bool isNullOrAbsent(object parent, std::string_view key) {
  element value;
  return parent[key].get(value) != SUCCESS || value.is_null();
}

std::string_view typeOf(object parent) {
  std::string_view type;
  return parent["type"].get(type) == SUCCESS ? type : std::string_view();
}

std::string quoteForError(std::string_view text, size_t shown) {
  std::string valid, out = "\"";
  appendValidUtf8(text.substr(0, shown), /*final=*/true, valid);
  for (char c : valid)
    out.push_back(static_cast<uint8_t>(c) < 0x20 ? ' ' : c);
  return out + (text.size() > shown ? "…\"" : "\"");
}

StatusOr<Tokenizer> Tokenizer::load(const std::string &path) {
  StatusOr<std::string> text = readFile(path, maxFileBytes);
  if (!text.ok())
    return text.status();
  return parse(*text, path);
}

StatusOr<Tokenizer> Tokenizer::parse(std::string_view json,
                                     const std::string &where) {
  return TokenizerReader(where).read(json);
}

StatusOr<Tokenizer> TokenizerReader::read(std::string_view json) {
  simdjson::dom::parser parser;
  element root;
  object file, model;
  if (auto code = parser.parse(json.data(), json.size()).get(root))
    return error("not valid JSON: {}", simdjson::error_message(code));
  if (root.get(file) != SUCCESS)
    return error("must be a JSON object, the tokenizer.json of a tokenizer");
  if (file["model"].get(model) != SUCCESS)
    return error("\"model\" must be an object");
  TESSERA_RETURN_IF_ERROR(readModel(model));
  element part;
  if (!isNullOrAbsent(file, "normalizer")) {
    (void)file["normalizer"].get(part);
    TESSERA_RETURN_IF_ERROR(readNormalizer(part));
  }
  if (isNullOrAbsent(file, "pre_tokenizer") || isNullOrAbsent(file, "decoder"))
    return error("\"pre_tokenizer\" and \"decoder\" must be those of a "
                 "byte-level tokenizer; other kinds are not supported");
  (void)file["pre_tokenizer"].get(part);
  TESSERA_RETURN_IF_ERROR(readPreTokenizer(part));
  (void)file["decoder"].get(part);
  TESSERA_RETURN_IF_ERROR(readDecoder(part));
  if (!isNullOrAbsent(file, "added_tokens")) {
    array tokens;
    if (file["added_tokens"].get(tokens) != SUCCESS)
      return error("\"added_tokens\" must be an array");
    TESSERA_RETURN_IF_ERROR(readAddedTokens(tokens));
  }
  result.contentHash = hash64(std::as_bytes(std::span(json)));
  return std::move(result);
}

Status TokenizerReader::readNormalizer(element normalizer) {
  object fields;
  if (normalizer.get(fields) != SUCCESS)
    return error("\"normalizer\" must be null or an object");
  std::string_view type = typeOf(fields);
  if (type == "NFC") {
    result.nfc = true;
    return Status::success();
  }
  array parts;
  if (type != "Sequence" || fields["normalizers"].get(parts) != SUCCESS)
    return error("normalizer {} is not supported; a byte-level tokenizer "
                 "has none, or NFC",
                 quoteForError(type));
  for (element part : parts) {
    // A sequence within a sequence is nobody's file, so depth ends here.
    object inner;
    if (part.get(inner) != SUCCESS || typeOf(inner) != "NFC")
      return error("a sequence of normalizers may hold only NFC");
    result.nfc = true;
  }
  return Status::success();
}

Status TokenizerReader::readPreTokenizer(element preTokenizer) {
  object fields;
  if (preTokenizer.get(fields) != SUCCESS)
    return error("\"pre_tokenizer\" must be an object");
  std::string_view type = typeOf(fields);
  if (type == "ByteLevel")
    return readByteLevel(fields, /*afterSplit=*/false);
  if (type == "Sequence")
    return readSequence(fields);
  return error("pre-tokenizer {} is not supported; ByteLevel, or a "
               "Sequence of Split and ByteLevel, is",
               quoteForError(type));
}

Status TokenizerReader::readSequence(object sequence) {
  array parts;
  object split, byteLevel;
  if (sequence["pretokenizers"].get(parts) != SUCCESS)
    return error("the pre-tokenizer's \"pretokenizers\" must be an array");
  if (parts.size() == 1 && parts.at(0).get(byteLevel) == SUCCESS &&
      typeOf(byteLevel) == "ByteLevel")
    return readByteLevel(byteLevel, /*afterSplit=*/false);
  if (parts.size() != 2 || parts.at(0).get(split) != SUCCESS ||
      parts.at(1).get(byteLevel) != SUCCESS || typeOf(split) != "Split" ||
      typeOf(byteLevel) != "ByteLevel")
    return error("a sequence of pre-tokenizers must be Split and then "
                 "ByteLevel; others are not supported");
  TESSERA_RETURN_IF_ERROR(readSplit(split));
  return readByteLevel(byteLevel, /*afterSplit=*/true);
}

Status TokenizerReader::readSplit(object split) {
  std::string_view regex, behavior;
  bool invert = false;
  if (split["pattern"]["Regex"].get(regex) != SUCCESS)
    return error("the Split pre-tokenizer's \"pattern\" must be a Regex");
  auto pattern = recognizeSplitPattern(regex);
  if (!pattern)
    return error("the splitting pattern {} is not known; those of GPT-2, "
                 "Llama 3 and Qwen2 are",
                 quoteForError(regex, 400));
  (void)split["behavior"].get(behavior);
  (void)split["invert"].get(invert);
  // The known patterns match every character, so that isolating the matches
  // and removing what stands between them are the same.
  bool isolated = behavior == "Isolated" && !invert;
  bool removed = behavior == "Removed" && invert;
  if (!isolated && !removed)
    return error("the Split pre-tokenizer's behavior {}{} is not "
                 "supported; Isolated is",
                 quoteForError(behavior), invert ? " inverted" : "");
  result.pattern = *pattern;
  return Status::success();
}

Status TokenizerReader::readByteLevel(object byteLevel, bool afterSplit) {
  bool useRegex = true, prefixSpace = false;
  if (byteLevel["add_prefix_space"].get(prefixSpace) != SUCCESS)
    return error("the ByteLevel pre-tokenizer's \"add_prefix_space\" must be "
                 "true or false");
  if (!isNullOrAbsent(byteLevel, "use_regex") &&
      byteLevel["use_regex"].get(useRegex) != SUCCESS)
    return error("the ByteLevel pre-tokenizer's \"use_regex\" must be true or "
                 "false");
  if (afterSplit && (useRegex || prefixSpace))
    return error("a ByteLevel pre-tokenizer after a Split must have "
                 "\"use_regex\" and \"add_prefix_space\" false");
  if (!afterSplit)
    result.pattern = useRegex ? SplitPattern::Gpt2 : SplitPattern::Whole;
  result.addPrefixSpace = prefixSpace;
  return Status::success();
}

Status TokenizerReader::readDecoder(element decoder) {
  object fields;
  if (decoder.get(fields) != SUCCESS || typeOf(fields) != "ByteLevel")
    return error("\"decoder\" must be ByteLevel; other kinds are not "
                 "supported");
  return Status::success();
}

} // namespace tessera::tokenizer
