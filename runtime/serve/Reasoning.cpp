#include "runtime/serve/Reasoning.h"
#include "runtime/serve/TagPrefix.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::serve {

// Qwen3, DeepSeek-R1, GLM-4.5 and most others; Magistral; Seed-OSS; Command A
// Reasoning.
static constexpr std::array<ReasoningTags, 4> kTags = {
    {{"<think>", "</think>"},
     {"[THINK]", "[/THINK]"},
     {"<seed:think>", "</seed:think>"},
     {"<|START_THINKING|>", "<|END_THINKING|>"}}};

const ReasoningTags *reasoningTagsOf(std::string_view chatTemplate) {
  const auto *found = std::ranges::find_if(kTags, [&](const auto &tags) {
    return chatTemplate.find(tags.close) != chatTemplate.npos;
  });
  return found == kTags.end() ? nullptr : found;
}

bool ReasoningTags::isOpenAfter(std::string_view prompt) const {
  const std::size_t last = prompt.find_last_not_of(kBlank);
  return last != prompt.npos && prompt.substr(0, last + 1).ends_with(open);
}

static void dropSpace(std::string &text) {
  text.erase(0, std::min(text.find_first_not_of(kBlank), text.size()));
}

/// The length of the longest suffix that could begin the tag, with the white
/// space before it.
static std::size_t tailLength(std::string_view text, std::string_view tag) {
  const std::size_t length = tagPrefixLength(text, tag);
  text.remove_suffix(length);
  const std::size_t last = text.find_last_not_of(kBlank);
  return length + text.size() - (last == text.npos ? 0 : last + 1);
}

// A model may write the opening tag although the template has.
void ReasoningReader::open(ReasoningPieces &out) {
  const std::size_t first = held.find_first_not_of(kBlank);
  if (first == held.npos)
    return;
  const std::string_view text = std::string_view(held).substr(first);
  if (text.starts_with(tags->open)) {
    held.erase(0, first + tags->open.size());
    dropSpace(held);
    place = Place::between;
    began = true;
  } else if (tags->open.starts_with(text)) {
    return;
  } else if (place == Place::opened) {
    dropSpace(held);
    place = Place::between;
  } else {
    place = Place::content;
    out.content += std::exchange(held, {});
  }
}

void ReasoningReader::close(ReasoningPieces &out) {
  if (out.reasoning.empty() && !hasReasoning)
    dropSpace(held);
  const std::size_t at = held.find(tags->close);
  const bool isOver = at != held.npos;
  const std::string_view text = std::string_view(held).substr(0, at);
  const std::size_t end =
      isOver ? std::min(text.find_last_not_of(kBlank) + 1, text.size())
             : held.size() - tailLength(held, tags->close);
  out.reasoning += held.substr(0, end);
  hasReasoning |= end > 0;
  held.erase(0, isOver ? at + tags->close.size() : end);
  if (isOver)
    place = Place::after;
}

ReasoningPieces ReasoningReader::push(std::string_view text) {
  ReasoningPieces out;
  held += text;
  if (place == Place::before || place == Place::opened)
    open(out);
  if (place == Place::between)
    close(out);
  if (place == Place::after) {
    dropSpace(held);
    if (!held.empty())
      place = Place::content;
  }
  if (place == Place::content)
    out.content += std::exchange(held, {});
  return out;
}

ReasoningPieces ReasoningReader::finish() {
  ReasoningPieces out;
  if (place == Place::before)
    out.content = std::move(held);
  else if (isReasoning())
    out.reasoning = held.substr(0, held.find_last_not_of(kBlank) + 1);
  held.clear();
  return out;
}

} // namespace tessera::serve
