#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/data/tokenizer/ByteAlphabet.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <algorithm>

namespace tessera::tokenizer {

const TokenText &Tokenizer::token(uint32_t id) const {
  static const TokenText absent;
  return id < strings.size() ? strings[id] : absent;
}

std::string Tokenizer::written(uint32_t id) const {
  const TokenText &text = token(id);
  return text.visible ? visibleFromBytes(text.bytes) : text.bytes;
}

std::optional<uint32_t> Tokenizer::addedToken(std::string_view content) const {
  auto found =
      std::find_if(added.begin(), added.end(), [&](const AddedToken &token) {
        return token.content == content;
      });
  if (found == added.end())
    return std::nullopt;
  return found->id;
}

std::optional<uint32_t> Tokenizer::documentEnd() const {
  for (std::string_view content : {"<|endoftext|>", "<|end_of_text|>"})
    if (auto id = addedToken(content))
      return id;
  return std::nullopt;
}

std::optional<uint32_t> Tokenizer::findSpecial(std::string_view text) const {
  auto match = specialMatcher.find(text, 0, /*plainSpecials=*/false);
  return match ? std::optional(match->id) : std::nullopt;
}

/// The token `id` where it takes part in decoding.
static const TokenText *shownToken(const Tokenizer &tokenizer, uint32_t id,
                                   bool skipSpecial) {
  const TokenText &token = tokenizer.token(id);
  return token.present && !(token.special && skipSpecial) ? &token : nullptr;
}

std::string decodeBytes(const Tokenizer &tokenizer,
                        std::span<const uint32_t> ids, bool skipSpecial) {
  std::string bytes;
  DecoderRun run(tokenizer.decoder);
  for (uint32_t id : ids)
    if (const TokenText *token = shownToken(tokenizer, id, skipSpecial))
      run.push(token->bytes, bytes);
  run.finish(bytes);
  return bytes;
}

std::string addedBytes(const Tokenizer &tokenizer, uint32_t id) {
  const TokenText *token = shownToken(tokenizer, id, /*skipSpecial=*/true);
  return token ? addedBytes(tokenizer.decoder, token->bytes) : std::string();
}

std::string decode(const Tokenizer &tokenizer, std::span<const uint32_t> ids,
                   bool skipSpecial) {
  std::string text;
  appendValidUtf8(decodeBytes(tokenizer, ids, skipSpecial), /*final=*/true,
                  text);
  return text;
}

std::string StreamDecoder::push(uint32_t id) {
  if (const TokenText *token = shownToken(tokenizer, id, skipSpecial))
    run.push(token->bytes, held);
  std::string text;
  size_t rest = appendValidUtf8(held, /*final=*/false, text);
  held.erase(0, held.size() - rest);
  return text;
}

std::string StreamDecoder::finish() {
  run.finish(held);
  std::string text;
  appendValidUtf8(held, /*final=*/true, text);
  held.clear();
  return text;
}

} // namespace tessera::tokenizer
