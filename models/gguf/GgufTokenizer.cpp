// Keys and types of tokens: docs/gguf.md of ggml-org/ggml.
#include "models/gguf/GgufTokenizer.h"
#include "models/gguf/GgufCuts.h"
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace tessera::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t maxToken = 1 << 24;
/// Maximum bytes of a SentencePiece token; each split of it may be a merge.
constexpr size_t maxPieceBytes = 512;
const std::string kKey = "tokenizer.ggml.";

enum Type : int64_t { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };

//===--- shared by both kinds -------------------------------------------===//

struct Token {
  std::string_view text;
  int64_t type = Normal;
};

class Reader {
public:
  Reader(GgufKeys &keys, std::string_view architecture)
      : keys(keys), architecture(architecture) {}
  StatusOr<GgufTokenizer> read();

private:
  void readTokens();
  void readSpecials();
  void readBytePairs();
  void readSentencePiece();
  void readScores();
  std::string merges() const;
  Json frame() const;
  Json addedTokens() const;
  bool isAdded(size_t id) const {
    int64_t type = tokens[id].type;
    return type == Control || type == UserDefined ||
           (type == Unknown && !isBytePairs);
  }
  /// Unused entries that pad the vocabulary in published files.
  bool isFiller(size_t id) const {
    return isBytePairs && tokens[id].type == Unused;
  }
  std::string vocabulary() const;
  void assemble(const Json &normalizer, const Json &preTokenizer,
                const Json &decoder, const Json &options,
                const std::string &merges);
  std::optional<int64_t> tokenOf(const char *name);

  GgufKeys &keys;
  std::string_view architecture;
  bool isBytePairs = false, begins = false, ends = false;
  std::vector<Token> tokens;
  std::vector<float> scores;
  std::optional<int64_t> bos, eos, unknown;
  GgufTokenizer result;
};

std::string jsonText(std::string_view text) {
  return nlohmann::json(text).dump();
}

void Reader::readTokens() {
  const GgufValue *strings = keys.array(kKey + "tokens", GgufKind::Text);
  const GgufValue *types = keys.array(kKey + "token_type", GgufKind::I32);
  if (keys.ok() && (!strings || strings->size() == 0))
    keys.fail(kKey + "tokens", "is missing");
  if (keys.ok() && int64_t(strings->size()) > maxToken)
    keys.fail(kKey + "tokens", "has {} tokens; up to {} are supported",
              strings->size(), maxToken);
  if (keys.ok() && types && types->size() != strings->size())
    keys.fail(kKey + "token_type", "has {} entries for {} tokens",
              types->size(), strings->size());
  if (!keys.ok())
    return;
  tokens.resize(strings->size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    strings->at(id).get(tokens[id].text);
    if (types)
      types->at(id).get(tokens[id].type);
    if (!isUtf8(tokens[id].text))
      return keys.fail(kKey + "tokens", "token {} is not UTF-8", id);
    if (tokens[id].type < Normal || tokens[id].type > Byte)
      return keys.fail(kKey + "token_type", "token {} has the unknown type {}",
                       id, tokens[id].type);
  }
  result.size = tokens.size();
}

std::optional<int64_t> Reader::tokenOf(const char *name) {
  int64_t id = 0;
  std::string key = fmt::format("{}{}_token_id", kKey, name);
  if (!keys.get(key, id, UINT32_MAX))
    return std::nullopt;
  if (id == UINT32_MAX) // some writers use this for "none"
    return std::nullopt;
  if (id >= int64_t(tokens.size())) {
    keys.fail(key, "{} is not below the vocabulary's {}", id, tokens.size());
    return std::nullopt;
  }
  return id;
}

void Reader::readSpecials() {
  bos = tokenOf("bos");
  eos = tokenOf("eos");
  unknown = tokenOf("unknown");
  keys.get(kKey + "add_bos_token", begins);
  keys.get(kKey + "add_eos_token", ends);
  for (auto end : {eos, tokenOf("eot")})
    if (end && !std::ranges::count(result.ends, *end))
      result.ends.push_back(*end);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  auto name = [&](const char *as, std::optional<int64_t> id) {
    if (id)
      config[as] = tokens[size_t(*id)].text;
  };
  name("bos_token", bos);
  name("eos_token", eos);
  name("unk_token", unknown);
  name("pad_token", tokenOf("padding"));
  result.config = config.dump(2) + "\n";
  begins &= bos.has_value();
  ends &= eos.has_value();
  std::string_view text;
  if (keys.get("tokenizer.chat_template", text))
    result.chatTemplate = text;
}

/// Tokens added at the start and end of a text.
Json Reader::frame() const {
  if (!begins && !ends)
    return isBytePairs ? byteLevelPart(true) : Json();
  Json single = Json::array(), special = Json::object();
  auto add = [&](int64_t id) {
    std::string text(tokens[size_t(id)].text);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text},
                     {"ids", Json::array({id})},
                     {"tokens", Json::array({text})}};
  };
  if (begins)
    add(*bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (ends)
    add(*eos);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair",
           {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
          {"special_tokens", special}};
}

Json Reader::addedTokens() const {
  Json list = Json::array();
  // Phi-3's chat tokens include the following space. The file cannot express
  // it; llama.cpp knows it by the model's name.
  auto takesSpace = [&](std::string_view text) {
    return architecture == "phi3" && !isBytePairs && text != "<unk>" &&
           text != "<s>" && text != "<|endoftext|>";
  };
  for (size_t id = 0; id < tokens.size(); ++id)
    if (isAdded(id) && !tokens[id].text.empty())
      list.push_back({{"id", id},
                      {"content", tokens[id].text},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", takesSpace(tokens[id].text)},
                      {"normalized", false},
                      {"special", tokens[id].type != UserDefined}});
  return list;
}

/// The vocabulary, including added tokens: `tokenizers` would renumber missing
/// ones. Written by hand, because adding n members to nlohmann's ordered JSON
/// object takes n² steps.
std::string Reader::vocabulary() const {
  std::string text;
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!isFiller(id))
      text += fmt::format("{}\n      {}: {}", text.empty() ? "" : ",",
                          jsonText(tokens[id].text), id);
  return text;
}

void Reader::assemble(const Json &normalizer, const Json &preTokenizer,
                      const Json &decoder, const Json &options,
                      const std::string &merges) {
  std::string fields;
  for (const auto &[name, value] : options.items())
    fields += fmt::format("\n    {}: {},", jsonText(name), value.dump());
  result.json = fmt::format(
      R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": {},
  "normalizer": {},
  "pre_tokenizer": {},
  "post_processor": {},
  "decoder": {},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,{}
    "vocab": {{{}
    }},
    "merges": [{}
    ]
  }}
}}
)",
      addedTokens().dump(), normalizer.dump(), preTokenizer.dump(),
      frame().dump(), decoder.dump(), fields, vocabulary(), merges);
}

//===--- byte-level BPE and SentencePiece
//----------------------------------------------------===//

void Reader::readBytePairs() {
  std::string_view given;
  if (!keys.get(kKey + "pre", given)) {
    given = "gpt-2";
    if (architecture != given && architecture != "gpt2")
      keys.fail(
          kKey + "pre",
          "is missing, so the pre-tokenizer is unknown; reconvert the model");
  }
  const GgufCut *cut = findGgufCut(given);
  if (!cut)
    return keys.fail(kKey + "pre", "{} is not supported; use {}", quote(given),
                     ggufCutNames());
  begins = cut->begins;
  readSpecials();
  const GgufValue *list = keys.array(kKey + "merges", GgufKind::Text);
  if (keys.ok() && !list)
    keys.fail(kKey + "merges", "is missing");
  if (!keys.ok())
    return;
  std::string merges;
  for (size_t i = 0; i < list->size(); ++i) {
    std::string_view pair;
    list->at(i).get(pair);
    if (!isUtf8(pair))
      return keys.fail(kKey + "merges", "merge {} is not UTF-8", i);
    merges += fmt::format("{}\n      {}", i ? "," : "", jsonText(pair));
  }
  result.shape = given;
  assemble(cut->nfc ? Json{{"type", "NFC"}} : Json(), preTokenizerOf(*cut),
           byteLevelPart(true),
           {{"unk_token", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", cut->ignoresMerges}},
           merges);
}

void Reader::readScores() {
  const GgufValue *list = keys.array(kKey + "scores", GgufKind::F32);
  if (keys.ok() && (!list || list->size() != tokens.size()))
    keys.fail(kKey + "scores", "must have a score for each of {} tokens",
              tokens.size());
  if (!keys.ok())
    return;
  for (size_t i = 0; i < list->size(); ++i) {
    double score = 0;
    list->at(i).get(score);
    if (!std::isfinite(score))
      return keys.fail(kKey + "scores", "the score of token {} is not a number",
                       i);
    scores.push_back(float(score));
  }
}

/// Each split of a piece into two pieces is a merge; pieces with higher scores
/// come first. Ties are ordered as in `transformers`.
std::string Reader::merges() const {
  struct Merge {
    uint32_t whole, left, right;
    uint32_t leftLength, rightLength; // in characters
  };
  auto merges = [&](size_t id) {
    int64_t type = tokens[id].type;
    return type == Normal || type == UserDefined || type == Unused;
  };
  std::unordered_map<std::string_view, uint32_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id)
    if (merges(id))
      ids.emplace(tokens[id].text, uint32_t(id));
  std::vector<Merge> all;
  for (size_t id = 0; id < tokens.size(); ++id) {
    std::string_view text = tokens[id].text;
    if (!merges(id))
      continue;
    auto isStart = [](char c) { return (c & 0xC0) != 0x80; };
    auto length = uint32_t(std::ranges::count_if(text, isStart)), left = 0u;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (!isStart(text[cut]))
        continue;
      ++left;
      auto a = ids.find(text.substr(0, cut)), b = ids.find(text.substr(cut));
      if (a != ids.end() && b != ids.end())
        all.push_back(
            {uint32_t(id), a->second, b->second, left, length - left});
    }
  }
  std::ranges::sort(all, [&](const Merge &a, const Merge &b) {
    auto first = std::tuple(scores[a.whole], a.leftLength, a.rightLength),
         second = std::tuple(scores[b.whole], b.leftLength, b.rightLength);
    return first == second ? std::tuple(a.whole, a.left, a.right) <
                                 std::tuple(b.whole, b.left, b.right)
                           : first > second;
  });
  // Old releases of `tokenizers` only read a merge as one string. New ones also
  // read two, which pieces with spaces require.
  bool spaced = std::ranges::any_of(all, [&](const Merge &merge) {
    return tokens[merge.whole].text.find(' ') != std::string_view::npos;
  });
  std::string list;
  for (const Merge &merge : all) {
    std::string_view left = tokens[merge.left].text,
                     right = tokens[merge.right].text;
    list += list.empty() ? "\n      " : ",\n      ";
    list += spaced ? fmt::format("[{}, {}]", jsonText(left), jsonText(right))
                   : jsonText(fmt::format("{} {}", left, right));
  }
  return list;
}

void Reader::readSentencePiece() {
  begins = true;
  readSpecials();
  readScores();
  bool prefix = true, trims = false;
  keys.get(kKey + "add_space_prefix", prefix);
  keys.get(kKey + "remove_extra_whitespaces", trims); // unused, as in llama.cpp
  for (size_t id = 0; id < tokens.size() && keys.ok(); ++id)
    if (tokens[id].text.size() > maxPieceBytes)
      keys.fail(kKey + "tokens",
                "token {} has {} bytes; up to {} are "
                "supported",
                id, tokens[id].text.size(), maxPieceBytes);
  if (!keys.ok())
    return;
  const char *mark = "\u2581";
  Json spaces = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}};
  Json normalizer = spaces, cut;
  Json decoders = {
      {{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
      {{"type", "ByteFallback"}},
      {{"type", "Fuse"}}};
  if (prefix) {
    normalizer = {
        {"type", "Sequence"},
        {"normalizers", {{{"type", "Prepend"}, {"prepend", mark}}, spaces}}};
    decoders.push_back(
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  for (size_t id = 0; id < tokens.size() && !unknown; ++id)
    if (tokens[id].type == Unknown)
      unknown = int64_t(id);
  result.shape = "SentencePiece";
  Json name = unknown ? Json(tokens[size_t(*unknown)].text) : Json();
  assemble(normalizer, cut, {{"type", "Sequence"}, {"decoders", decoders}},
           {{"unk_token", name},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"ignore_merges", false}},
           merges());
}

StatusOr<GgufTokenizer> Reader::read() {
  std::string_view model;
  if (!keys.get(kKey + "model", model))
    keys.fail(kKey + "model", "is missing");
  else if (model == "no_vocab" || model == "none")
    return std::move(result);
  else if (model != "gpt2" && model != "llama")
    keys.fail(kKey + "model", "{} is not supported; use gpt2 or llama",
              quote(model));
  isBytePairs = model == "gpt2";
  if (keys.ok())
    readTokens();
  if (keys.ok() && isBytePairs)
    readBytePairs();
  else if (keys.ok())
    readSentencePiece();
  if (!keys.ok())
    return keys.status();
  // Checks that the result can be read.
  auto check = tokenizer::Tokenizer::parse(
      result.json, keys.of().where() + ": the tokenizer made of it");
  if (!check.ok())
    return check.status();
  return std::move(result);
}

} // namespace

StatusOr<GgufTokenizer> ggufTokenizer(GgufKeys &keys,
                                      std::string_view architecture) {
  return Reader(keys, architecture).read();
}

} // namespace tessera::models
