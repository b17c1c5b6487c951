// The normalizers, pre-tokenizers and decoders of tokenizer.json.
#include "runtime/data/tokenizer/TokenizerReader.h"

#include <algorithm>

namespace tessera::tokenizer {

/// The bytes of `text` in base 64 (RFC 4648), or nothing.
static std::optional<std::string> decodeBase64(std::string_view text) {
  while (text.ends_with('='))
    text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0, count = 0;
  for (char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<uint32_t>(c - 'a' + 26);
    else if (c >= '0' && c <= '9')
      value = static_cast<uint32_t>(c - '0' + 52);
    else if (c == '+' || c == '/')
      value = c == '+' ? 62 : 63;
    else
      return std::nullopt;
    bits = bits << 6 | value;
    if (count += 6; count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

Status TokenizerReader::readNormalizer(const JsonValue &part, size_t depth) {
  std::string_view type = typeOf(part);
  Normalizer &normalizer = result.normalizer;
  if (type == "Sequence" && depth < maxSequenceDepth) {
    const JsonValue::Array &parts = part["normalizers"].elements();
    if (!part["normalizers"].isArray() || parts.size() > maxTokenizerSteps)
      return error("the normalizer's \"normalizers\" must be an array of at "
                   "most {}",
                   maxTokenizerSteps);
    for (const JsonValue &inner : parts)
      TESSERA_RETURN_IF_ERROR(readNormalizer(inner, depth + 1));
    return Status::success();
  }
  static constexpr std::pair<std::string_view, NormalForm> forms[] = {
      {"NFC", NormalForm::C},
      {"NFD", NormalForm::D},
      {"NFKC", NormalForm::KC},
      {"NFKD", NormalForm::KD}};
  for (auto [name, form] : forms)
    if (type == name) {
      normalizer.add([form = form](std::string_view text) {
        return normalize(text, form);
      });
      return Status::success();
    }
  if (type == "Lowercase") {
    normalizer.add(lowercase);
  } else if (type == "StripAccents") {
    normalizer.add([](std::string_view text) {
      return withoutMarks(text, /*onlyNonspacing=*/false);
    });
  } else if (type == "Strip") {
    bool left = true, right = true;
    TESSERA_RETURN_IF_ERROR(readFlag(part, "strip_left", left));
    TESSERA_RETURN_IF_ERROR(readFlag(part, "strip_right", right));
    normalizer.add(
        [=](std::string_view text) { return stripped(text, left, right); });
  } else if (type == "Prepend") {
    std::string_view prefix;
    TESSERA_RETURN_IF_ERROR(readText(part, "prepend", prefix));
    normalizer.add([prefix = std::string(prefix)](std::string_view text) {
      return text.empty() ? std::string() : prefix + std::string(text);
    });
  } else if (type == "Replace") {
    return readReplace(part);
  } else if (type == "BertNormalizer") {
    return readBertNormalizer(part);
  } else if (type == "Precompiled") {
    return readCharacterMap(part);
  } else {
    return error("normalizer {} is not supported", quoteForError(type));
  }
  return Status::success();
}

Status TokenizerReader::readBertNormalizer(const JsonValue &part) {
  BertNormalizerOptions options;
  TESSERA_RETURN_IF_ERROR(readFlag(part, "clean_text", options.cleanText));
  TESSERA_RETURN_IF_ERROR(
      readFlag(part, "handle_chinese_chars", options.chineseCharacters));
  TESSERA_RETURN_IF_ERROR(readFlag(part, "lowercase", options.lowercase));
  options.stripAccents = options.lowercase;
  TESSERA_RETURN_IF_ERROR(
      readFlag(part, "strip_accents", options.stripAccents));
  result.normalizer.add(
      [=](std::string_view text) { return bertNormalized(text, options); });
  return Status::success();
}

Status TokenizerReader::readReplace(const JsonValue &part) {
  std::shared_ptr<const Regex> regex;
  std::string_view content;
  TESSERA_RETURN_IF_ERROR(readPattern(part, regex));
  TESSERA_RETURN_IF_ERROR(readText(part, "content", content));
  result.normalizer.add(
      [regex, content = std::string(content)](std::string_view text) {
        return replaced(text, *regex, content);
      });
  return Status::success();
}

Status TokenizerReader::readCharacterMap(const JsonValue &part) {
  std::string_view text;
  TESSERA_RETURN_IF_ERROR(readText(part, "precompiled_charsmap", text));
  std::optional<std::string> bytes = decodeBase64(text);
  if (!bytes)
    return error("the \"precompiled_charsmap\" is not base 64");
  StatusOr<CharacterMap> map = CharacterMap::parse(*bytes);
  if (!map.ok())
    return error("the normalizer has {}", map.message());
  result.normalizer.add(
      [map = std::make_shared<const CharacterMap>(map.take())](
          std::string_view text) { return map->apply(text); });
  return Status::success();
}

Status TokenizerReader::addSplit(std::string_view regex, SplitBehavior behavior,
                                 bool invert) {
  StatusOr<Regex> compiled = Regex::compile(regex);
  if (!compiled.ok())
    return error("{}", compiled.message());
  PreTokenizerStep step;
  step.regex = std::make_shared<const Regex>(compiled.take());
  step.behavior = behavior;
  step.invert = invert;
  result.preTokenizer.steps.push_back(std::move(step));
  return Status::success();
}

Status TokenizerReader::readPreTokenizer(const JsonValue &part, size_t depth) {
  std::string_view type = typeOf(part);
  if (result.preTokenizer.steps.size() >= maxTokenizerSteps)
    return error("more than {} pre-tokenizers", maxTokenizerSteps);
  if (type == "Sequence" && depth < maxSequenceDepth) {
    if (!part["pretokenizers"].isArray())
      return error("the pre-tokenizer's \"pretokenizers\" must be an array");
    for (const JsonValue &inner : part["pretokenizers"].elements())
      TESSERA_RETURN_IF_ERROR(readPreTokenizer(inner, depth + 1));
    return Status::success();
  }
  // What BERT takes for punctuation: that of ASCII, and all of category P.
  static constexpr std::string_view punctuation = R"([!-/:-@\[-`{-~\p{P}])";
  if (type == "ByteLevel")
    return readByteLevel(part);
  if (type == "Split")
    return readSplit(part);
  if (type == "Whitespace") // Here, words have joiners in them.
    return addSplit(R"([\w\u200C\u200D]+|[^\w\s\u200C\u200D]+)",
                    SplitBehavior::Removed, /*invert=*/true);
  if (type == "WhitespaceSplit")
    return addSplit(R"(\s)", SplitBehavior::Removed);
  if (type == "BertPreTokenizer") {
    TESSERA_RETURN_IF_ERROR(addSplit(R"(\s)", SplitBehavior::Removed));
    return addSplit(punctuation, SplitBehavior::Isolated);
  }
  if (type == "Digits") {
    bool individual = false;
    TESSERA_RETURN_IF_ERROR(readFlag(part, "individual_digits", individual));
    return addSplit(R"(\p{N})", individual ? SplitBehavior::Isolated
                                           : SplitBehavior::Contiguous);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::Isolated;
    if (!part["behavior"].isNull())
      TESSERA_RETURN_IF_ERROR(readSplitBehavior(part, behavior));
    return addSplit(punctuation, behavior);
  }
  if (type == "Metaspace") {
    PreTokenizerStep step;
    step.kind = PreTokenizerStep::Kind::Metaspace;
    TESSERA_RETURN_IF_ERROR(
        readMetaspace(part, step.mark, step.prepend, step.split));
    result.preTokenizer.steps.push_back(std::move(step));
    return Status::success();
  }
  return error("pre-tokenizer {} is not supported", quoteForError(type));
}

Status TokenizerReader::readSplitBehavior(const JsonValue &part,
                                          SplitBehavior &behavior) {
  static constexpr std::pair<std::string_view, SplitBehavior> names[] = {
      {"Isolated", SplitBehavior::Isolated},
      {"Removed", SplitBehavior::Removed},
      {"Contiguous", SplitBehavior::Contiguous},
      {"MergedWithPrevious", SplitBehavior::MergedWithPrevious},
      {"MergedWithNext", SplitBehavior::MergedWithNext}};
  std::string_view name;
  TESSERA_RETURN_IF_ERROR(readText(part, "behavior", name));
  const auto *found = std::find_if(
      std::begin(names), std::end(names),
      [&](const auto &candidate) { return candidate.first == name; });
  if (found == std::end(names))
    return error("the \"behavior\" {} of {} is not supported",
                 quoteForError(name), quoteForError(typeOf(part)));
  behavior = found->second;
  return Status::success();
}

Status TokenizerReader::readSplit(const JsonValue &part) {
  PreTokenizerStep step;
  TESSERA_RETURN_IF_ERROR(readPattern(part, step.regex));
  TESSERA_RETURN_IF_ERROR(readSplitBehavior(part, step.behavior));
  TESSERA_RETURN_IF_ERROR(readFlag(part, "invert", step.invert));
  result.preTokenizer.steps.push_back(std::move(step));
  return Status::success();
}

Status TokenizerReader::readByteLevel(const JsonValue &part) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::ByteLevel;
  bool useRegex = true;
  step.prefixSpace = true;
  TESSERA_RETURN_IF_ERROR(readFlag(part, "add_prefix_space", step.prefixSpace));
  TESSERA_RETURN_IF_ERROR(readFlag(part, "use_regex", useRegex));
  if (useRegex)
    step.regex = splitPatternAutomaton(SplitPattern::Gpt2);
  result.preTokenizer.steps.push_back(std::move(step));
  return Status::success();
}

Status TokenizerReader::readMetaspace(const JsonValue &part, std::string &mark,
                                      PrependScheme &prepend, bool &split) {
  std::string_view text, scheme = "always";
  TESSERA_RETURN_IF_ERROR(readText(part, "replacement", text));
  if (text.empty() ||
      decodeUtf8(text.data(), text.data() + text.size()).length != text.size())
    return error("the \"replacement\" of Metaspace must be one character");
  mark = text;
  // Files of old releases have a flag instead of the scheme.
  bool prefixSpace = true;
  TESSERA_RETURN_IF_ERROR(readFlag(part, "add_prefix_space", prefixSpace));
  if (!part["prepend_scheme"].isNull())
    TESSERA_RETURN_IF_ERROR(readText(part, "prepend_scheme", scheme));
  else if (!prefixSpace)
    scheme = "never";
  if (scheme == "always")
    prepend = PrependScheme::Always;
  else if (scheme == "first")
    prepend = PrependScheme::First;
  else if (scheme == "never")
    prepend = PrependScheme::Never;
  else
    return error("the \"prepend_scheme\" of Metaspace must be \"always\", "
                 "\"first\" or \"never\", got {}",
                 quoteForError(scheme));
  return readFlag(part, "split", split);
}

Status TokenizerReader::readDecoder(const JsonValue &part, size_t depth) {
  std::string_view type = typeOf(part);
  Decoder &decoder = result.decoder;
  if (decoder.steps.size() >= maxTokenizerSteps)
    return error("more than {} decoders", maxTokenizerSteps);
  if (type == "Sequence" && depth < maxSequenceDepth) {
    if (!part["decoders"].isArray())
      return error("the decoder's \"decoders\" must be an array");
    for (const JsonValue &inner : part["decoders"].elements())
      TESSERA_RETURN_IF_ERROR(readDecoder(inner, depth + 1));
    return Status::success();
  }
  if (fused) {
    // One text is left; what may still happen to it, happens at its beginning.
    if (type == "Fuse")
      return Status::success();
    if (type == "Strip")
      return readStripDecoder(part);
    return error("decoder {} after {} is not supported", quoteForError(type),
                 decoder.bytes ? "ByteLevel" : "Fuse");
  }
  if (type == "ByteLevel" || type == "Fuse") {
    decoder.bytes = type == "ByteLevel";
    if (decoder.bytes && !decoder.steps.empty())
      return error("decoder \"ByteLevel\" after others is not supported");
    fused = true;
    return Status::success();
  }
  return readDecoderStep(part);
}

Status TokenizerReader::readStripDecoder(const JsonValue &part) {
  DecoderStep step;
  step.kind = DecoderStep::Kind::Strip;
  std::string_view content;
  TESSERA_RETURN_IF_ERROR(readText(part, "content", content));
  if (content.empty() || !part["start"].get(step.left) ||
      !part["stop"].get(step.right))
    return error("the decoder Strip must have a \"content\", a \"start\" and a "
                 "\"stop\"");
  step.text = content;
  if (!fused) {
    result.decoder.steps.push_back(std::move(step));
    return Status::success();
  }
  if (step.right != 0 || result.decoder.leadingCount != 0)
    return error("the decoder Strip may follow Fuse only once, and only with "
                 "\"stop\": 0");
  result.decoder.leading = std::move(step.text);
  result.decoder.leadingCount = step.left;
  return Status::success();
}

Status TokenizerReader::readDecoderStep(const JsonValue &part) {
  std::string_view type = typeOf(part), text;
  DecoderStep step;
  if (type == "Strip")
    return readStripDecoder(part);
  if (type == "ByteFallback") {
    step.kind = DecoderStep::Kind::ByteFallback;
  } else if (type == "Replace") {
    step.kind = DecoderStep::Kind::Replace;
    TESSERA_RETURN_IF_ERROR(readPattern(part, step.regex));
    TESSERA_RETURN_IF_ERROR(readText(part, "content", text));
    step.text = text;
  } else if (type == "Metaspace") {
    step.kind = DecoderStep::Kind::Metaspace;
    PrependScheme prepend = PrependScheme::Always;
    bool split = true;
    TESSERA_RETURN_IF_ERROR(readMetaspace(part, step.text, prepend, split));
    step.drop = prepend != PrependScheme::Never;
  } else if (type == "WordPiece") {
    step.kind = DecoderStep::Kind::WordPiece;
    step.cleanup = true;
    TESSERA_RETURN_IF_ERROR(readText(part, "prefix", text));
    TESSERA_RETURN_IF_ERROR(readFlag(part, "cleanup", step.cleanup));
    step.text = text;
  } else if (type == "BPEDecoder") {
    step.kind = DecoderStep::Kind::Suffix;
    TESSERA_RETURN_IF_ERROR(readText(part, "suffix", text));
    step.text = text;
  } else {
    return error("decoder {} is not supported", quoteForError(type));
  }
  result.decoder.steps.push_back(std::move(step));
  return Status::success();
}

} // namespace tessera::tokenizer
