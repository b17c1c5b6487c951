#include "runtime/data/tokenizer/BpeModel.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <algorithm>
#include <functional>

namespace tessera::tokenizer {

static constexpr uint32_t none = BpeModel::noToken;
static constexpr size_t shortPiece = 96;

void BpeMerger::encode(std::string_view piece, std::vector<uint32_t> &out) {
  if (model.ignoreMerges) {
    auto whole = model.tokens.find(piece);
    if (whole != model.tokens.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  if (model.bytes) {
    initial.resize(piece.size());
    for (size_t i = 0; i < piece.size(); ++i)
      initial[i] = model.byteTokens[static_cast<uint8_t>(piece[i])];
  } else {
    tokensOfCharacters(piece);
  }
  if (initial.size() <= shortPiece)
    mergeShort(out);
  else
    mergeLong(out);
}

bool BpeMerger::appendFallback(std::string_view text) {
  if (!model.byteFallback)
    return false;
  for (char byte : text)
    if (model.fallbackTokens[static_cast<uint8_t>(byte)] == none)
      return false;
  for (char byte : text)
    initial.push_back(model.fallbackTokens[static_cast<uint8_t>(byte)]);
  return true;
}

void BpeMerger::tokensOfCharacters(std::string_view piece) {
  initial.clear();
  // An unknown token is held back until a known one ends the run of them, so
  // that bytes of a fallback go before it: the order that `tokenizers` has.
  bool unknownHeld = false;
  bool affixes = !model.continuingPrefix.empty() || !model.endSuffix.empty();
  const char *begin = piece.data(), *end = begin + piece.size();
  for (const char *at = begin; at != end;) {
    Utf8Char c = decodeUtf8(at, end);
    std::string_view text(at, c.length);
    if (affixes) {
      affixed.assign(at == begin ? "" : model.continuingPrefix).append(text);
      if (at + c.length == end)
        affixed += model.endSuffix;
      text = affixed;
    }
    at += c.length;
    auto known = model.tokens.find(text);
    if (known != model.tokens.end()) {
      if (std::exchange(unknownHeld, false))
        initial.push_back(model.unknown);
      initial.push_back(known->second);
    } else if (!appendFallback(text) && model.unknown != none) {
      if (unknownHeld && !model.fuseUnknown)
        initial.push_back(model.unknown);
      unknownHeld = true;
    }
  }
  if (unknownHeld)
    initial.push_back(model.unknown);
}

void BpeMerger::mergeShort(std::vector<uint32_t> &out) {
  uint32_t tokens[shortPiece];
  // ranks[i] is the rank of the pair (i, i + 1), results[i] what it becomes.
  uint32_t ranks[shortPiece], results[shortPiece];
  size_t count = initial.size();
  auto rankPair = [&](size_t i) {
    const Merge *merge = nullptr;
    if (i + 1 < count)
      merge = model.merges.find(makePair(tokens[i], tokens[i + 1]));
    ranks[i] = merge ? merge->rank : none;
    results[i] = merge ? merge->token : none;
  };
  std::copy(initial.begin(), initial.end(), tokens);
  for (size_t i = 0; i < count; ++i)
    rankPair(i);
  while (count > 1) {
    size_t best =
        static_cast<size_t>(std::min_element(ranks, ranks + count) - ranks);
    if (ranks[best] == none)
      break;
    tokens[best] = results[best];
    std::copy(tokens + best + 2, tokens + count, tokens + best + 1);
    std::copy(ranks + best + 2, ranks + count, ranks + best + 1);
    std::copy(results + best + 2, results + count, results + best + 1);
    --count;
    rankPair(best);
    if (best > 0)
      rankPair(best - 1);
  }
  out.insert(out.end(), tokens, tokens + count);
}

void BpeMerger::mergeLong(std::vector<uint32_t> &out) {
  uint32_t count = static_cast<uint32_t>(initial.size());
  symbols.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i)
    symbols[i] = {initial[i], i == 0 ? none : i - 1,
                  i + 1 == count ? none : i + 1};
  auto findMerge = [&](uint32_t i) -> const Merge * {
    uint32_t next = symbols[i].next;
    if (next == none)
      return nullptr;
    return model.merges.find(makePair(symbols[i].token, symbols[next].token));
  };
  // An entry is a rank and, below it, the position of the pair's left symbol.
  auto pushPair = [&](uint32_t i) {
    if (const Merge *merge = findMerge(i)) {
      heap.push_back(uint64_t{merge->rank} << 32 | i);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (uint32_t i = 0; i < count; ++i)
    if (const Merge *merge = findMerge(i))
      heap.push_back(uint64_t{merge->rank} << 32 | i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    uint64_t entry = heap.back();
    heap.pop_back();
    uint32_t at = static_cast<uint32_t>(entry);
    // An entry is stale where its pair has become another one since.
    if (symbols[at].token == none)
      continue;
    const Merge *merge = findMerge(at);
    if (!merge || merge->rank != entry >> 32)
      continue;
    Symbol &left = symbols[at];
    Symbol &right = symbols[left.next];
    left.token = merge->token;
    left.next = right.next;
    right.token = none;
    if (left.next != none)
      symbols[left.next].previous = at;
    pushPair(at);
    if (left.previous != none)
      pushPair(left.previous);
  }
  for (uint32_t i = 0; i != none; i = symbols[i].next)
    out.push_back(symbols[i].token);
}

} // namespace tessera::tokenizer
