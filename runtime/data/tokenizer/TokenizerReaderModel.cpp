// The vocabulary, the merges and the added tokens of tokenizer.json.
#include "runtime/data/tokenizer/ByteAlphabet.h"
#include "runtime/data/tokenizer/TokenizerReader.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <algorithm>
#include <cmath>

namespace tessera::tokenizer {

/// Ids index a table, so a hostile one must not make it huge.
static constexpr uint64_t maxTokens = 1 << 24;
static constexpr size_t maxAddedTokenBytes = 256;

/// Makes `id` the place of the token `text`.
Status TokenizerReader::claimId(uint64_t id, std::string_view text) {
  if (id >= idLimit)
    return error(
        "token {} has the id {}; ids up to {} are supported in a vocabulary "
        "of this size",
        quoteForError(text), id, idLimit - 1);
  if (id >= result.strings.size())
    result.strings.resize(id + 1);
  TokenText &place = result.strings[id];
  if (place.present)
    return error("token {} has the id {}, which another token has already",
                 quoteForError(text), id);
  place.present = true;
  // A string outside the alphabet, as an added token may have, represents
  // itself.
  std::optional<std::string> bytes;
  if (result.decoder.bytes)
    bytes = bytesFromVisible(text);
  place.visible = bytes.has_value();
  place.bytes = bytes ? std::move(*bytes) : std::string(text);
  return Status::success();
}

Status TokenizerReader::readModel(const JsonValue &model) {
  std::string_view type = typeOf(model);
  if (type == "Unigram")
    return readUnigram(model);
  if (type == "WordPiece")
    return readWordPiece(model);
  // Files of old releases name no type.
  if (type != "BPE" && !(type.empty() && model["type"].isNull()))
    return error("model {} is not supported; BPE, Unigram and WordPiece are",
                 quoteForError(type));
  return readBpe(model);
}

Status TokenizerReader::readBpeOptions(const JsonValue &model, BpeModel &bpe) {
  for (auto [key, affix] :
       {std::pair("continuing_subword_prefix", &bpe.continuingPrefix),
        std::pair("end_of_word_suffix", &bpe.endSuffix)}) {
    std::string_view text;
    if (!model[key].isNull())
      TESSERA_RETURN_IF_ERROR(readText(model, key, text));
    *affix = text;
  }
  double dropout = 0;
  if (!model["dropout"].isNull() &&
      (!model["dropout"].get(dropout) || dropout != 0))
    return error(
        "the model's \"dropout\" must be null: encoding is not random");
  TESSERA_RETURN_IF_ERROR(readFlag(model, "byte_fallback", bpe.byteFallback));
  TESSERA_RETURN_IF_ERROR(readFlag(model, "fuse_unk", bpe.fuseUnknown));
  return readFlag(model, "ignore_merges", bpe.ignoreMerges);
}

Status TokenizerReader::readUnknownToken(const JsonValue &model,
                                         uint32_t &unknown) {
  std::string_view text;
  TESSERA_RETURN_IF_ERROR(readText(model, "unk_token", text));
  auto found = idsByText.find(text);
  if (found == idsByText.end())
    return error("the unknown token {} is not in the vocabulary",
                 quoteForError(text));
  unknown = found->second;
  return Status::success();
}

/// Whether every byte has a token of its own, which become `byteTokens`.
bool TokenizerReader::fillByteTokens(BpeModel &bpe) const {
  for (size_t byte = 0; byte < 256; ++byte) {
    char single = static_cast<char>(byte);
    auto found = idsByText.find(visibleFromBytes({&single, 1}));
    if (found == idsByText.end())
      return false;
    bpe.byteTokens[byte] = found->second;
  }
  return true;
}

void TokenizerReader::fillFallback(std::array<uint32_t, 256> &tokens) const {
  for (size_t byte = 0; byte < 256; ++byte) {
    auto found = idsByText.find(fmt::format("<0x{:02X}>", byte));
    tokens[byte] = found == idsByText.end() ? BpeModel::noToken : found->second;
  }
}

Status TokenizerReader::readBpe(const JsonValue &model) {
  BpeModel bpe;
  TESSERA_RETURN_IF_ERROR(readBpeOptions(model, bpe));
  if (!model["merges"].isArray())
    return error("the model's \"merges\" must be an array");
  TESSERA_RETURN_IF_ERROR(readVocabulary(model["vocab"]));
  // Pieces can stay bytes where becoming visible is the last thing that happens
  // to them and no byte can be unknown.
  std::vector<PreTokenizerStep> &steps = result.preTokenizer.steps;
  auto byteLevels =
      std::count_if(steps.begin(), steps.end(), [](const auto &step) {
        return step.kind == PreTokenizerStep::Kind::ByteLevel;
      });
  bpe.bytes = byteLevels == 1 &&
              steps.back().kind == PreTokenizerStep::Kind::ByteLevel &&
              bpe.continuingPrefix.empty() && bpe.endSuffix.empty() &&
              fillByteTokens(bpe);
  if (bpe.bytes)
    steps.back().visible = false;
  result.validText = byteLevels == 0;
  if (!bpe.bytes || bpe.ignoreMerges)
    for (auto [text, id] : idsByText) {
      std::optional<std::string> bytes = bytesFromVisible(text);
      if (!bpe.bytes)
        bpe.tokens.emplace(text, id);
      else if (bytes)
        bpe.tokens.emplace(std::move(*bytes), id);
    }
  if (!bpe.bytes && !model["unk_token"].isNull())
    TESSERA_RETURN_IF_ERROR(readUnknownToken(model, bpe.unknown));
  fillFallback(bpe.fallbackTokens);
  TESSERA_RETURN_IF_ERROR(readMerges(model["merges"].elements(), bpe));
  result.model = std::move(bpe);
  return Status::success();
}

Status TokenizerReader::readUnigramPiece(const JsonValue &piece, size_t id,
                                         UnigramModel &unigram) {
  std::string_view text;
  double score = 0;
  const JsonValue::Array &fields = piece.elements();
  if (fields.size() != 2 || !fields[0].get(text) || !fields[1].get(score) ||
      !std::isfinite(score))
    return error("entry {} of the vocabulary must be a token and its score",
                 id);
  TESSERA_RETURN_IF_ERROR(claimId(id, text));
  idsByText[text] = static_cast<uint32_t>(id);
  if (!text.empty())
    unigram.trie.add(text, static_cast<uint32_t>(id));
  unigram.scores.push_back(score);
  unigram.lowestScore = id == 0 ? score : std::min(unigram.lowestScore, score);
  return Status::success();
}

Status TokenizerReader::readUnigram(const JsonValue &model) {
  UnigramModel unigram;
  size_t id = 0;
  if (!model["vocab"].isArray())
    return error("the model's \"vocab\" must be an array of token and score");
  for (const JsonValue &piece : model["vocab"].elements())
    TESSERA_RETURN_IF_ERROR(readUnigramPiece(piece, id++, unigram));
  uint64_t unknown = 0;
  if (!model["unk_id"].get(unknown) || unknown >= id)
    return error("the model's \"unk_id\" must be the id of a token, which "
                 "represents unknown characters");
  unigram.unknown = static_cast<uint32_t>(unknown);
  TESSERA_RETURN_IF_ERROR(
      readFlag(model, "byte_fallback", unigram.byteFallback));
  fillFallback(unigram.fallbackTokens);
  result.validText = true;
  result.model = std::move(unigram);
  return Status::success();
}

Status TokenizerReader::readWordPiece(const JsonValue &model) {
  WordPieceModel words;
  TESSERA_RETURN_IF_ERROR(readVocabulary(model["vocab"]));
  for (auto [text, id] : idsByText)
    if (!text.empty())
      words.trie.add(text, id);
  TESSERA_RETURN_IF_ERROR(readUnknownToken(model, words.unknown));
  std::string_view prefix = "##";
  if (!model["continuing_subword_prefix"].isNull())
    TESSERA_RETURN_IF_ERROR(
        readText(model, "continuing_subword_prefix", prefix));
  words.continues = true;
  words.continuing = ByteTrie::root;
  for (char byte : prefix) {
    words.continuing = words.trie.step(words.continuing, byte).next;
    if (words.continuing == ByteTrie::root) {
      words.continues = false;
      break;
    }
  }
  if (!model["max_input_chars_per_word"].isNull() &&
      !model["max_input_chars_per_word"].get(words.maxCharacters))
    return error("the model's \"max_input_chars_per_word\" must be an integer "
                 "that is not negative");
  result.validText = true;
  result.model = std::move(words);
  return Status::success();
}

Status TokenizerReader::readVocabulary(const JsonValue &vocabulary) {
  if (!vocabulary.isObject())
    return error("the model's \"vocab\" must be an object of token and id");
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

Status TokenizerReader::readMerges(const JsonValue::Array &merges,
                                   BpeModel &bpe) {
  if (merges.size() >= maxTokens)
    return error("{} merges are too many; fewer than {} are supported",
                 merges.size(), maxTokens);
  bpe.merges = PairMap<Merge>(merges.size());
  uint32_t rank = 0;
  std::string joined;
  for (const JsonValue &merge : merges) {
    auto sides = mergeSides(merge);
    if (!sides)
      return error("merge {} must be two tokens, \"left right\" or [\"left\", "
                   "\"right\"]",
                   rank);
    if (sides->second.size() < bpe.continuingPrefix.size())
      return error("the right side of merge {} is shorter than the prefix of "
                   "continuing tokens",
                   rank);
    joined.assign(sides->first)
        .append(sides->second.substr(bpe.continuingPrefix.size()));
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
    bpe.merges[makePair(ids[0], ids[1])] = {rank++, ids[2]};
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
      {"special", &token.special},        {"normalized", &token.normalized},
      {"lstrip", &token.stripLeft},       {"rstrip", &token.stripRight},
      {"single_word", &token.singleWord},
  };
  for (auto [key, flag] : flags)
    if (!fields[key].isNull() && !fields[key].get(*flag))
      return error("the \"{}\" of added token {} must be true or false", key,
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
  result.strings[token.id].special = token.special;
  if (token.normalized)
    result.normalizedMatcher.add(token, result.normalizer.apply(content));
  else
    result.rawMatcher.add(token, content);
  if (token.special) {
    AddedToken anywhere = token;
    anywhere.singleWord = false;
    result.specialMatcher.add(anywhere, content);
  }
  result.added.push_back(std::move(token));
  return Status::success();
}

} // namespace tessera::tokenizer
