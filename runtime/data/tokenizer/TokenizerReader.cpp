#include "runtime/data/tokenizer/TokenizerReader.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/support/Hash.h"

namespace tessera::tokenizer {

static constexpr int64_t maxFileBytes = 512 << 20;

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

StatusOr<Tokenizer> Tokenizer::of(const ModelFiles &files) {
  constexpr std::string_view name = "tokenizer.json";
  StatusOr<std::string> text = files.read(name, maxFileBytes);
  if (!text.ok())
    return text.status();
  return parse(*text, files.where(name));
}

StatusOr<Tokenizer> Tokenizer::parse(std::string_view json,
                                     const std::string &where) {
  return TokenizerReader(where).read(json);
}

/// Memory is taken for each id up to the largest: gaps are few in files that
/// were made for models.
static uint64_t tokenIdLimit(uint64_t tokens) {
  constexpr uint64_t most = 1 << 24, gaps = 1 << 16;
  return std::min(most, gaps + 8 * tokens);
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
  if (!file["normalizer"].isNull())
    TESSERA_RETURN_IF_ERROR(readNormalizer(file["normalizer"], 0));
  if (!file["pre_tokenizer"].isNull())
    TESSERA_RETURN_IF_ERROR(readPreTokenizer(file["pre_tokenizer"], 0));
  if (file["decoder"].isNull())
    result.decoder.steps.push_back({});
  else
    TESSERA_RETURN_IF_ERROR(readDecoder(file["decoder"], 0));
  const JsonValue &tokens = file["added_tokens"];
  const JsonValue &vocabulary = file["model"]["vocab"];
  idLimit =
      tokenIdLimit(vocabulary.members().size() + vocabulary.elements().size() +
                   tokens.elements().size());
  TESSERA_RETURN_IF_ERROR(readModel(file["model"]));
  if (!tokens.isNull() && !tokens.isArray())
    return error("\"added_tokens\" must be an array");
  TESSERA_RETURN_IF_ERROR(readAddedTokens(tokens.elements()));
  if (!file["post_processor"].isNull())
    TESSERA_RETURN_IF_ERROR(readPostProcessor(file["post_processor"], 0));
  result.contentHash = hash64(std::as_bytes(std::span(json)));
  return std::move(result);
}

Status TokenizerReader::readFlag(const JsonValue &part, const char *key,
                                 bool &value) {
  if (!part[key].isNull() && !part[key].get(value))
    return error("the \"{}\" of {} must be true or false", key,
                 quoteForError(typeOf(part)));
  return Status::success();
}

Status TokenizerReader::readText(const JsonValue &part, const char *key,
                                 std::string_view &value) {
  if (!part[key].get(value))
    return error("the \"{}\" of {} must be a string", key,
                 quoteForError(typeOf(part)));
  return Status::success();
}

Status TokenizerReader::readPattern(const JsonValue &part,
                                    std::shared_ptr<const Regex> &regex) {
  std::string_view text;
  bool literal = part["pattern"]["String"].get(text);
  if (!literal && !part["pattern"]["Regex"].get(text))
    return error("the \"pattern\" of {} must be a Regex or a String",
                 quoteForError(typeOf(part)));
  StatusOr<Regex> compiled =
      literal ? Regex::literal(text) : Regex::compile(text);
  if (!compiled.ok())
    return error("{}", compiled.message());
  regex = std::make_shared<const Regex>(compiled.take());
  return Status::success();
}

Status TokenizerReader::readPostProcessor(const JsonValue &part, size_t depth) {
  std::string_view type = typeOf(part);
  if (type == "Sequence" && depth < maxSequenceDepth) {
    if (!part["processors"].isArray())
      return error("the post-processor's \"processors\" must be an array");
    for (const JsonValue &inner : part["processors"].elements())
      TESSERA_RETURN_IF_ERROR(readPostProcessor(inner, depth + 1));
    return Status::success();
  }
  if (type == "ByteLevel") // It moves offsets, and ids have none.
    return Status::success();
  if (type == "TemplateProcessing")
    return readTemplate(part);
  if (type != "BertProcessing" && type != "RobertaProcessing")
    return error("post-processor {} is not supported", quoteForError(type));
  std::vector<uint32_t> cls;
  TESSERA_RETURN_IF_ERROR(readFrameToken(part, "cls", cls));
  std::vector<uint32_t> sep;
  TESSERA_RETURN_IF_ERROR(readFrameToken(part, "sep", sep));
  result.prefix.insert(result.prefix.begin(), cls.begin(), cls.end());
  result.suffix.insert(result.suffix.end(), sep.begin(), sep.end());
  // RoBERTa has no types, and separates strings by two tokens.
  PairFrame pair{cls, sep, sep, std::nullopt};
  if (type == "BertProcessing")
    pair.ofFirst = sep.size();
  else
    pair.between.insert(pair.between.end(), sep.begin(), sep.end());
  result.pair = std::move(pair);
  return Status::success();
}

/// "cls": [text, id].
Status TokenizerReader::readFrameToken(const JsonValue &part, const char *key,
                                       std::vector<uint32_t> &ids) {
  const JsonValue::Array &pair = part[key].elements();
  uint64_t id = 0;
  if (pair.size() != 2 || !pair[1].get(id) || id >= result.strings.size() ||
      !result.strings[id].present)
    return error("the post-processor's \"{}\" must be a token and its id", key);
  ids.push_back(static_cast<uint32_t>(id));
  return Status::success();
}

Status TokenizerReader::readTemplateToken(const JsonValue &part,
                                          std::string_view name,
                                          std::vector<uint32_t> &ids) {
  const JsonValue &list = part["special_tokens"][name]["ids"];
  if (!list.isArray())
    return error("the post-processor's token {} is not among its "
                 "\"special_tokens\"",
                 quoteForError(name));
  for (const JsonValue &value : list.elements()) {
    uint64_t id = 0;
    if (!value.get(id) || id >= result.strings.size() ||
        !result.strings[id].present)
      return error("the post-processor's token {} has an id that no token has",
                   quoteForError(name));
    ids.push_back(static_cast<uint32_t>(id));
  }
  return Status::success();
}

Status TokenizerReader::readTemplate(const JsonValue &part) {
  std::vector<uint32_t> before, after;
  size_t sequences = 0;
  for (const JsonValue &piece : part["single"].elements()) {
    std::string_view name;
    if (piece["SpecialToken"]["id"].get(name))
      TESSERA_RETURN_IF_ERROR(
          readTemplateToken(part, name, sequences == 0 ? before : after));
    else if (piece["Sequence"]["id"].get(name) && name == "A")
      ++sequences;
    else
      return error("the post-processor's \"single\" must hold a SpecialToken "
                   "or the Sequence A");
  }
  if (sequences != 1)
    return error("the post-processor's \"single\" must hold the Sequence A "
                 "once, not {} times",
                 sequences);
  result.prefix.insert(result.prefix.begin(), before.begin(), before.end());
  result.suffix.insert(result.suffix.end(), after.begin(), after.end());
  readPair(part);
  return Status::success();
}

// The template of a pair. Few models need it, so that an unusual one is an
// error only when it is used.
void TokenizerReader::readPair(const JsonValue &part) {
  PairFrame pair{{}, {}, {}, std::nullopt};
  std::vector<uint32_t> *to = &pair.before;
  uint64_t last = 0;
  bool isKnown = true;
  for (const JsonValue &piece : part["pair"].elements()) {
    const bool isText = !piece["Sequence"].isNull();
    const JsonValue &inner = piece[isText ? "Sequence" : "SpecialToken"];
    std::string_view name;
    uint64_t type = 0;
    isKnown &= inner["id"].get(name) && inner["type_id"].get(type) &&
               type >= last && type <= 1;
    // Types change between the strings, or not at all.
    const bool isBetween = to == &pair.between;
    isKnown &= type == last || isBetween;
    if (type > last)
      pair.ofFirst = pair.between.size();
    last = type;
    if (!isText)
      isKnown &= readTemplateToken(part, name, *to).ok();
    else {
      isKnown &= name == (isBetween ? "B" : "A") && to != &pair.after;
      to = isBetween ? &pair.after : &pair.between;
    }
  }
  pair.isKnown = isKnown && to == &pair.after;
  result.pair = std::move(pair);
}

} // namespace tessera::tokenizer
