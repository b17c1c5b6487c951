#include "runtime/data/chat/EndOfTurn.h"
#include "runtime/data/Json.h"
#include "runtime/data/ShallowJson.h"

#include <algorithm>

namespace tessera::chat {

static constexpr int64_t maxConfigBytes = 64 << 20;
static constexpr std::string_view tokenizerConfig = "tokenizer_config.json";

bool EndOfTurn::contains(uint32_t token) const {
  return std::binary_search(tokens.begin(), tokens.end(), token);
}

namespace {
class Finder {
public:
  Finder(const ModelFiles &files, const tokenizer::Tokenizer &tokenizer)
      : files(files), tokenizer(tokenizer) {}

  Status addNamed(std::string_view name, const std::string &where);
  Status addIds(std::string_view file);
  Status addTokenizers();
  StatusOr<EndOfTurn> finish();

private:
  StatusOr<JsonValue> read(std::string_view file) const;
  Status add(uint64_t id, const std::string &where);

  const ModelFiles &files;
  const tokenizer::Tokenizer &tokenizer;
  EndOfTurn found;
  std::optional<uint32_t> padding;
};
} // namespace

StatusOr<JsonValue> Finder::read(std::string_view file) const {
  if (!files.has(file))
    return JsonValue();
  StatusOr<std::string> text = files.read(file, maxConfigBytes);
  if (!text.ok())
    return text.status();
  return JsonValue::parse(*text, files.where(file));
}

Status Finder::add(uint64_t id, const std::string &where) {
  if (id >= tokenizer.vocabSize() || !tokenizer.token(uint32_t(id)).present)
    return Status::error("{}: eos_token_id {} is not a token of tokenizer.json",
                         where, id);
  found.tokens.push_back(uint32_t(id));
  if (found.text.empty())
    found.text = tokenizer.token(uint32_t(id)).bytes;
  return Status::success();
}

Status Finder::addNamed(std::string_view name, const std::string &where) {
  std::optional<uint32_t> id = tokenizer.addedToken(name);
  if (!id)
    return Status::error("{}: {} is not an added token of tokenizer.json",
                         where, shownName(name));
  return add(*id, where);
}

Status Finder::addIds(std::string_view file) {
  StatusOr<JsonValue> config = read(file);
  if (!config.ok())
    return config.status();
  const JsonValue &ids = (*config)["eos_token_id"];
  uint64_t id = 0;
  if (ids.get(id))
    return add(id, files.where(file));
  for (const JsonValue &each : ids.elements()) {
    if (!each.get(id))
      return Status::error("{}: \"eos_token_id\" must be an integer or a list "
                           "of integers",
                           files.where(file));
    TESSERA_RETURN_IF_ERROR(add(id, files.where(file)));
  }
  return Status::success();
}

/// A special token is a string, or an object with its "content".
static std::string_view tokenText(const JsonValue &value) {
  std::string_view text;
  if (!value.get(text))
    value["content"].get(text);
  return text;
}

Status Finder::addTokenizers() {
  StatusOr<JsonValue> config = read(tokenizerConfig);
  if (!config.ok())
    return config.status();
  const std::string_view pad = tokenText((*config)["pad_token"]);
  padding = tokenizer.addedToken(pad);
  const std::string_view end = tokenText((*config)["eos_token"]);
  return end.empty() ? Status::success()
                     : addNamed(end, files.where(tokenizerConfig));
}

StatusOr<EndOfTurn> Finder::finish() {
  if (found.tokens.empty())
    return Status::error("{}: neither tokenizer_config.json nor "
                         "generation_config.json says which token ends an "
                         "answer; say so with --end-of-turn TOKEN",
                         files.place());
  found.padding = padding.value_or(found.tokens.front());
  std::sort(found.tokens.begin(), found.tokens.end());
  found.tokens.erase(std::unique(found.tokens.begin(), found.tokens.end()),
                     found.tokens.end());
  return std::move(found);
}

StatusOr<EndOfTurn> findEndOfTurn(const ModelFiles &files,
                                  const tokenizer::Tokenizer &tokenizer,
                                  const std::vector<std::string> &names) {
  Finder finder(files, tokenizer);
  for (const std::string &name : names)
    TESSERA_RETURN_IF_ERROR(finder.addNamed(name, "--end-of-turn"));
  if (names.empty()) {
    TESSERA_RETURN_IF_ERROR(finder.addTokenizers());
    for (const char *file : {"generation_config.json", "config.json"})
      TESSERA_RETURN_IF_ERROR(finder.addIds(file));
  }
  return finder.finish();
}

} // namespace tessera::chat
