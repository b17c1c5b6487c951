#include "runtime/data/tokenizer/TokenizerReader.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/support/Hash.h"

namespace tessera::tokenizer {

static constexpr size_t maxFileBytes = 512 << 20;

std::string_view typeOf(const JsonValue &object) {
  std::string_view type;
  (void)object["type"].get(type);
  return type;
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
  StatusOr<JsonValue> root = JsonValue::parse(json, where);
  if (!root.ok())
    return root.status();
  const JsonValue &file = *root;
  if (!file.isObject())
    return error("must be a JSON object, the tokenizer.json of a tokenizer");
  if (!file["model"].isObject())
    return error("\"model\" must be an object");
  TESSERA_RETURN_IF_ERROR(readModel(file["model"]));
  if (!file["normalizer"].isNull())
    TESSERA_RETURN_IF_ERROR(readNormalizer(file["normalizer"]));
  if (file["pre_tokenizer"].isNull() || file["decoder"].isNull())
    return error("\"pre_tokenizer\" and \"decoder\" must be those of a "
                 "byte-level tokenizer; other kinds are not supported");
  TESSERA_RETURN_IF_ERROR(readPreTokenizer(file["pre_tokenizer"]));
  TESSERA_RETURN_IF_ERROR(readDecoder(file["decoder"]));
  const JsonValue &tokens = file["added_tokens"];
  if (!tokens.isNull() && !tokens.isArray())
    return error("\"added_tokens\" must be an array");
  TESSERA_RETURN_IF_ERROR(readAddedTokens(tokens.elements()));
  result.contentHash = hash64(std::as_bytes(std::span(json)));
  return std::move(result);
}

Status TokenizerReader::readNormalizer(const JsonValue &normalizer) {
  if (!normalizer.isObject())
    return error("\"normalizer\" must be null or an object");
  std::string_view type = typeOf(normalizer);
  if (type == "NFC") {
    result.nfc = true;
    return Status::success();
  }
  const JsonValue &parts = normalizer["normalizers"];
  if (type != "Sequence" || !parts.isArray())
    return error("normalizer {} is not supported; a byte-level tokenizer "
                 "has none, or NFC",
                 quoteForError(type));
  for (const JsonValue &part : parts.elements()) {
    // A sequence within a sequence is nobody's file, so depth ends here.
    if (typeOf(part) != "NFC")
      return error("a sequence of normalizers may hold only NFC");
    result.nfc = true;
  }
  return Status::success();
}

Status TokenizerReader::readPreTokenizer(const JsonValue &preTokenizer) {
  if (!preTokenizer.isObject())
    return error("\"pre_tokenizer\" must be an object");
  std::string_view type = typeOf(preTokenizer);
  if (type == "ByteLevel")
    return readByteLevel(preTokenizer, /*afterSplit=*/false);
  if (type == "Sequence")
    return readSequence(preTokenizer);
  return error("pre-tokenizer {} is not supported; ByteLevel, or a "
               "Sequence of Split and ByteLevel, is",
               quoteForError(type));
}

Status TokenizerReader::readSequence(const JsonValue &sequence) {
  if (!sequence["pretokenizers"].isArray())
    return error("the pre-tokenizer's \"pretokenizers\" must be an array");
  const JsonValue::Array &parts = sequence["pretokenizers"].elements();
  if (parts.size() == 1 && typeOf(parts[0]) == "ByteLevel")
    return readByteLevel(parts[0], /*afterSplit=*/false);
  if (parts.size() != 2 || typeOf(parts[0]) != "Split" ||
      typeOf(parts[1]) != "ByteLevel")
    return error("a sequence of pre-tokenizers must be Split and then "
                 "ByteLevel; others are not supported");
  TESSERA_RETURN_IF_ERROR(readSplit(parts[0]));
  return readByteLevel(parts[1], /*afterSplit=*/true);
}

Status TokenizerReader::readSplit(const JsonValue &split) {
  std::string_view regex, behavior;
  bool invert = false;
  if (!split["pattern"]["Regex"].get(regex))
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

Status TokenizerReader::readByteLevel(const JsonValue &byteLevel,
                                      bool afterSplit) {
  bool useRegex = true, prefixSpace = false;
  if (!byteLevel["add_prefix_space"].get(prefixSpace))
    return error("the ByteLevel pre-tokenizer's \"add_prefix_space\" must be "
                 "true or false");
  if (!byteLevel["use_regex"].isNull() && !byteLevel["use_regex"].get(useRegex))
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

Status TokenizerReader::readDecoder(const JsonValue &decoder) {
  if (typeOf(decoder) != "ByteLevel")
    return error("\"decoder\" must be ByteLevel; other kinds are not "
                 "supported");
  return Status::success();
}

} // namespace tessera::tokenizer
