// The vocabulary, the merges and the added tokens of tokenizer.json.
#include "runtime/data/tokenizer/ByteAlphabet.h"
#include "runtime/data/tokenizer/TokenizerReader.h"
#include "runtime/data/tokenizer/Unicode.h"

namespace tessera::tokenizer {

/// Ids index a table, so a hostile one must not make it huge.
static constexpr uint64_t maxTokens = 1 << 24;
static constexpr size_t maxAddedTokenBytes = 256;

Status TokenizerReader::readModel(const JsonValue &model) {
  TESSERA_RETURN_IF_ERROR(readModelOptions(model));
  if (!model["vocab"].isObject())
    return error("the model's \"vocab\" must be an object of token and id");
  if (!model["merges"].isArray())
    return error("the model's \"merges\" must be an array");
  TESSERA_RETURN_IF_ERROR(readVocabulary(model["vocab"]));
  TESSERA_RETURN_IF_ERROR(readByteTokens());
  return readMerges(model["merges"].elements());
}

Status TokenizerReader::readModelOptions(const JsonValue &model) {
  std::string_view type = typeOf(model);
  // Files of old releases name no type.
  if (type != "BPE" && !(type.empty() && model["type"].isNull()))
    return error("model {} is not supported; byte-level BPE is",
                 quoteForError(type));
  for (const char *key :
       {"continuing_subword_prefix", "end_of_word_suffix", "unk_token"}) {
    std::string_view text;
    bool isText = !model[key].isNull();
    // An unknown token never occurs where every byte has a token.
    if (isText && (!model[key].get(text) ||
                   (!text.empty() && std::string_view(key) != "unk_token")))
      return error("the model's \"{}\" must be null or empty; a byte-level "
                   "tokenizer has none",
                   key);
  }
  double dropout = 0;
  if (!model["dropout"].isNull() &&
      (!model["dropout"].get(dropout) || dropout != 0))
    return error(
        "the model's \"dropout\" must be null: encoding is not random");
  bool flag = false;
  if (model["byte_fallback"].get(flag) && flag)
    return error("the model's \"byte_fallback\" must be false; tokenizers "
                 "that fall back to bytes are not byte-level");
  if (!model["ignore_merges"].isNull() &&
      !model["ignore_merges"].get(result.model.ignoreMerges))
    return error("the model's \"ignore_merges\" must be true or false");
  return Status::success();
}

/// Makes `id` the place of the token `text`.
Status TokenizerReader::claimId(uint64_t id, std::string_view text) {
  if (id >= maxTokens)
    return error("token {} has the id {}; ids up to {} are supported",
                 quoteForError(text), id, maxTokens - 1);
  if (id >= result.texts.size())
    result.texts.resize(id + 1);
  TokenText &place = result.texts[id];
  if (place.present)
    return error("token {} has the id {}, which another token has already",
                 quoteForError(text), id);
  place.present = true;
  // A text outside the alphabet stands for itself; an added token may have one.
  std::optional<std::string> bytes = bytesFromVisible(text);
  place.bytes = bytes ? std::move(*bytes) : std::string(text);
  return Status::success();
}

Status TokenizerReader::readVocabulary(const JsonValue &vocabulary) {
  idsByText.reserve(vocabulary.members().size());
  for (const auto &[text, value] : vocabulary.members()) {
    uint64_t id = 0;
    if (!value.get(id))
      return error("the id of token {} must be an integer that is not "
                   "negative",
                   quoteForError(text));
    TESSERA_RETURN_IF_ERROR(claimId(id, text));
    if (!idsByText.emplace(text, static_cast<uint32_t>(id)).second)
      return error("token {} stands twice in the vocabulary",
                   quoteForError(text));
    if (result.model.ignoreMerges)
      if (auto bytes = bytesFromVisible(text))
        result.model.tokensByBytes.emplace(std::move(*bytes),
                                           static_cast<uint32_t>(id));
  }
  return Status::success();
}

Status TokenizerReader::readByteTokens() {
  for (size_t byte = 0; byte < 256; ++byte) {
    char single = static_cast<char>(byte);
    std::string text = visibleFromBytes({&single, 1});
    auto found = idsByText.find(text);
    if (found == idsByText.end())
      return error("the vocabulary has no token {} for the byte 0x{:02X}; a "
                   "byte-level tokenizer has one for each of the 256",
                   quoteForError(text), byte);
    result.model.byteTokens[byte] = found->second;
  }
  return Status::success();
}

/// The two sides of a merge: "left right" or ["left", "right"].
static std::optional<std::pair<std::string_view, std::string_view>>
mergeSides(const JsonValue &merge) {
  std::string_view text, left, right;
  if (merge.get(text)) {
    size_t space = text.find(' ');
    if (space == std::string_view::npos ||
        text.find(' ', space + 1) != std::string_view::npos)
      return std::nullopt;
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  const JsonValue::Array &sides = merge.elements();
  if (sides.size() != 2 || !sides[0].get(left) || !sides[1].get(right))
    return std::nullopt;
  return std::pair(left, right);
}

Status TokenizerReader::readMerges(const JsonValue::Array &merges) {
  if (merges.size() >= maxTokens)
    return error("{} merges are too many; fewer than {} are supported",
                 merges.size(), maxTokens);
  result.model.merges = PairMap<Merge>(merges.size());
  uint32_t rank = 0;
  std::string joined;
  for (const JsonValue &merge : merges) {
    auto sides = mergeSides(merge);
    if (!sides)
      return error("merge {} must be two tokens, \"left right\" or [\"left\", "
                   "\"right\"]",
                   rank);
    joined.assign(sides->first).append(sides->second);
    uint32_t ids[3];
    size_t i = 0;
    for (std::string_view text :
         {sides->first, sides->second, std::string_view(joined)}) {
      auto found = idsByText.find(text);
      if (found == idsByText.end())
        return error("merge {} needs the token {}, which the vocabulary does "
                     "not have",
                     rank, quoteForError(text));
      ids[i++] = found->second;
    }
    // Where a merge stands twice, `tokenizers` keeps the later rank.
    result.model.merges[makePair(ids[0], ids[1])] = {rank++, ids[2]};
  }
  return Status::success();
}

Status TokenizerReader::readAddedTokens(const JsonValue::Array &tokens) {
  size_t index = 0;
  for (const JsonValue &token : tokens) {
    if (!token.isObject())
      return error("added token {} must be an object", index);
    TESSERA_RETURN_IF_ERROR(readAddedToken(token, index++));
  }
  return Status::success();
}

Status TokenizerReader::readAddedToken(const JsonValue &fields, size_t index) {
  AddedToken token;
  std::string_view content;
  uint64_t id = 0;
  bool singleWord = false;
  if (!fields["content"].get(content) || content.empty() ||
      content.size() > maxAddedTokenBytes)
    return error("the \"content\" of added token {} must be a string of 1 to "
                 "{} bytes",
                 index, maxAddedTokenBytes);
  if (!fields["id"].get(id))
    return error("the \"id\" of added token {} must be an integer that is not "
                 "negative",
                 quoteForError(content));
  const std::pair<const char *, bool *> flags[] = {
      {"special", &token.special},  {"normalized", &token.normalized},
      {"lstrip", &token.stripLeft}, {"rstrip", &token.stripRight},
      {"single_word", &singleWord},
  };
  for (auto [key, flag] : flags)
    if (!fields[key].isNull() && !fields[key].get(*flag))
      return error("the \"{}\" of added token {} must be true or false", key,
                   quoteForError(content));
  if (singleWord)
    return error("added token {} has \"single_word\", which is not supported",
                 quoteForError(content));

  auto known = idsByText.find(content);
  if (known == idsByText.end()) {
    TESSERA_RETURN_IF_ERROR(claimId(id, content));
    idsByText.emplace(content, static_cast<uint32_t>(id));
  } else if (known->second != id) {
    return error("added token {} has the id {}, but the vocabulary gives it {}",
                 quoteForError(content), id, known->second);
  }
  token.id = static_cast<uint32_t>(id);
  token.content = content;
  result.texts[token.id].special = token.special;
  if (token.normalized)
    result.normalizedMatcher.add(token, result.nfc ? normalizeNfc(content)
                                                   : std::string(content));
  else
    result.rawMatcher.add(token, content);
  result.added.push_back(std::move(token));
  return Status::success();
}

} // namespace tessera::tokenizer
