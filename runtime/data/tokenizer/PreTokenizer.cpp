#include "runtime/data/tokenizer/PreTokenizer.h"
#include "runtime/data/tokenizer/ByteAlphabet.h"

#include <array>
#include <cassert>

namespace tessera::tokenizer {

static constexpr std::array<std::string_view, 4> patterns = {
    "",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

std::string_view splitPatternRegex(SplitPattern pattern) {
  return patterns[static_cast<size_t>(pattern)];
}

const std::shared_ptr<const Regex> &
splitPatternAutomaton(SplitPattern pattern) {
  static const auto compiled = [] {
    std::array<std::shared_ptr<const Regex>, patterns.size()> all;
    for (size_t i = 1; i < patterns.size(); ++i) {
      StatusOr<Regex> regex = Regex::compile(patterns[i]);
      assert(regex.ok() && "the patterns above are valid");
      all[i] = std::make_shared<const Regex>(regex.take());
    }
    return all;
  }();
  return compiled[static_cast<size_t>(pattern)];
}

void PreTokenizer::run(size_t step, std::string_view text, bool first,
                       const Sink &sink) const {
  if (text.empty())
    return;
  if (step == steps.size())
    return sink(text);
  switch (steps[step].kind) {
  case PreTokenizerStep::Kind::Split:
    return runSplit(step, text, first, sink);
  case PreTokenizerStep::Kind::ByteLevel:
    return runByteLevel(step, text, first, sink);
  case PreTokenizerStep::Kind::Metaspace:
    return runMetaspace(step, text, first, sink);
  }
}

/// Calls `onStretch(begin, end, matched)` for the matches and what stands
/// between them, in order.
template <typename OnStretch>
static void forEachStretch(const Regex &regex, std::string_view text,
                           bool invert, OnStretch onStretch) {
  RegexScanner scanner(regex, text);
  size_t at = 0;
  while (auto match = scanner.next()) {
    if (match->begin > at)
      onStretch(at, match->begin, invert);
    onStretch(match->begin, match->end, !invert);
    at = match->end;
  }
  if (at < text.size())
    onStretch(at, text.size(), invert);
}

void PreTokenizer::runSplit(size_t step, std::string_view text, bool first,
                            const Sink &sink) const {
  const PreTokenizerStep &split = steps[step];
  auto emit = [&](size_t begin, size_t end) {
    run(step + 1, text.substr(begin, end - begin), first && begin == 0, sink);
  };
  // The piece that may still grow, and whether it ends (Contiguous: is, Next:
  // begins) in a match.
  size_t heldBegin = 0, heldEnd = 0;
  bool heldMatch = false;
  forEachStretch(*split.regex, text, split.invert,
                 [&](size_t begin, size_t end, bool matched) {
                   bool grows = false;
                   switch (split.behavior) {
                   case SplitBehavior::Isolated:
                     return emit(begin, end);
                   case SplitBehavior::Removed:
                     return matched ? void() : emit(begin, end);
                   case SplitBehavior::Contiguous:
                     grows = matched == heldMatch;
                     break;
                   case SplitBehavior::MergedWithPrevious:
                     grows = matched && !heldMatch;
                     break;
                   case SplitBehavior::MergedWithNext:
                     grows = heldMatch && !matched;
                     break;
                   }
                   if (!grows) {
                     emit(heldBegin, heldEnd);
                     heldBegin = begin;
                   }
                   heldEnd = end;
                   heldMatch = matched;
                 });
  if (split.behavior != SplitBehavior::Isolated &&
      split.behavior != SplitBehavior::Removed)
    emit(heldBegin, heldEnd);
}

void PreTokenizer::runByteLevel(size_t step, std::string_view text, bool first,
                                const Sink &sink) const {
  const PreTokenizerStep &bytes = steps[step];
  std::string prefixed;
  if (bytes.prefixSpace && text.front() != ' ') {
    prefixed = " " + std::string(text);
    text = prefixed;
  }
  auto emit = [&](std::string_view piece, bool isFirst) {
    if (bytes.visible)
      run(step + 1, visibleFromBytes(piece), isFirst, sink);
    else
      run(step + 1, piece, isFirst, sink);
  };
  if (!bytes.regex)
    return emit(text, first);
  forEachStretch(*bytes.regex, text, /*invert=*/false,
                 [&](size_t begin, size_t end, bool) {
                   emit(text.substr(begin, end - begin), first && begin == 0);
                 });
}

void PreTokenizer::runMetaspace(size_t step, std::string_view text, bool first,
                                const Sink &sink) const {
  const PreTokenizerStep &meta = steps[step];
  std::string marked;
  marked.reserve(text.size() + meta.mark.size());
  bool prepend = meta.prepend == PrependScheme::Always ||
                 (meta.prepend == PrependScheme::First && first);
  if (prepend && text.front() != ' ' && !text.starts_with(meta.mark))
    marked = meta.mark;
  for (char c : text)
    if (c == ' ')
      marked += meta.mark;
    else
      marked.push_back(c);
  if (!meta.split)
    return run(step + 1, marked, first, sink);
  size_t begin = 0;
  while (begin < marked.size()) {
    size_t end = std::min(marked.find(meta.mark, begin + 1), marked.size());
    run(step + 1, std::string_view(marked).substr(begin, end - begin),
        first && begin == 0, sink);
    begin = end;
  }
}

} // namespace tessera::tokenizer
