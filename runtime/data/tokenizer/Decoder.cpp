#include "runtime/data/tokenizer/Decoder.h"
#include "runtime/data/tokenizer/Normalizer.h"

#include <optional>

namespace tessera::tokenizer {

static std::string replacedText(std::string_view text, std::string_view what,
                                std::string_view by) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(what); found != text.npos && !what.empty();
       found = text.find(what, at)) {
    out += text.substr(at, found - at);
    out += by;
    at = found + what.size();
  }
  return out += text.substr(at);
}

/// The byte of a token such as <0x0A>.
static std::optional<char> fallbackByte(std::string_view text) {
  auto digit = [](char c) {
    if (c >= '0' && c <= '9')
      return c - '0';
    char letter = static_cast<char>(c | 0x20);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
  };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>')
    return std::nullopt;
  int high = digit(text[3]), low = digit(text[4]);
  if (high < 0 || low < 0)
    return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

static std::string cleanedUp(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> changes[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (auto [what, by] : changes)
    text = replacedText(text, what, by);
  return text;
}

static std::string strippedOf(std::string_view text, const DecoderStep &step) {
  for (uint64_t i = 0; i < step.left && text.starts_with(step.text); ++i)
    text.remove_prefix(step.text.size());
  for (uint64_t i = 0; i < step.right && text.ends_with(step.text); ++i)
    text.remove_suffix(step.text.size());
  return std::string(text);
}

static std::string wordPieceText(std::string text, const DecoderStep &step,
                                 bool first) {
  if (!first && text.starts_with(step.text))
    text.erase(0, step.text.size());
  else if (!first)
    text.insert(0, " ");
  return step.cleanup ? cleanedUp(std::move(text)) : text;
}

void DecoderRun::push(std::string_view token, std::string &out) {
  feed(0, std::string(token), out);
}

/// Gives `text` to the steps from `at` on.
void DecoderRun::feed(size_t at, std::string text, std::string &out) {
  for (; at < decoder.steps.size(); ++at) {
    const DecoderStep &step = decoder.steps[at];
    bool first = seen[at]++ == 0;
    switch (step.kind) {
    case DecoderStep::Kind::Replace:
      text = replaced(text, *step.regex, step.text);
      break;
    case DecoderStep::Kind::Strip:
      text = strippedOf(text, step);
      break;
    case DecoderStep::Kind::Metaspace:
      text = replacedText(text, step.text, first && step.drop ? "" : " ");
      break;
    case DecoderStep::Kind::WordPiece:
      text = wordPieceText(std::move(text), step, first);
      break;
    case DecoderStep::Kind::Join:
      if (!first)
        text.insert(0, " ");
      break;
    case DecoderStep::Kind::Suffix:
      std::swap(text, held[at]);
      if (!holds[at]) {
        holds[at] = true;
        return;
      }
      text = replacedText(text, step.text, " ");
      break;
    case DecoderStep::Kind::ByteFallback:
      if (auto byte = fallbackByte(text)) {
        held[at].push_back(*byte);
        return;
      }
      flush(at, out);
      break;
    }
  }
  emit(text, out);
}

/// Lets the step `at` give away what it holds.
void DecoderRun::flush(size_t at, std::string &out) {
  const DecoderStep &step = decoder.steps[at];
  std::string text = std::move(held[at]);
  held[at].clear();
  if (step.kind == DecoderStep::Kind::Suffix && holds[at]) {
    holds[at] = false;
    feed(at + 1, replacedText(text, step.text, ""), out);
  } else if (step.kind == DecoderStep::Kind::ByteFallback && !text.empty()) {
    std::string valid;
    appendValidUtf8(text, /*final=*/true, valid);
    if (valid == text) {
      feed(at + 1, std::move(text), out);
      return;
    }
    for (size_t i = 0; i < text.size(); ++i)
      feed(at + 1, "\uFFFD", out);
  }
}

void DecoderRun::emit(std::string_view text, std::string &out) {
  while (dropped < decoder.leadingCount && !text.empty()) {
    if (!text.starts_with(decoder.leading)) {
      dropped = decoder.leadingCount;
      break;
    }
    text.remove_prefix(decoder.leading.size());
    ++dropped;
  }
  out += text;
}

void DecoderRun::finish(std::string &out) {
  for (size_t at = 0; at < decoder.steps.size(); ++at)
    flush(at, out);
  std::fill(seen.begin(), seen.end(), 0);
  dropped = 0;
}

std::string addedBytes(const Decoder &decoder, std::string_view token) {
  if (decoder.bytes)
    return std::string(token);
  for (const DecoderStep &step : decoder.steps)
    if (auto byte = fallbackByte(token);
        byte && step.kind == DecoderStep::Kind::ByteFallback)
      return {*byte};
  // What the token before it is does not matter, only that there is one.
  DecoderRun before(decoder), with(decoder);
  std::string prefix, text;
  before.push("a", prefix);
  before.finish(prefix);
  with.push("a", text);
  with.push(token, text);
  with.finish(text);
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

} // namespace tessera::tokenizer
