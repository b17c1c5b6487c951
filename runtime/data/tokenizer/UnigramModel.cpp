#include "runtime/data/tokenizer/UnigramModel.h"
#include "runtime/data/tokenizer/Unicode.h"

namespace tessera::tokenizer {

/// How much less than the least probable token an unknown character is worth.
static constexpr double unknownPenalty = 10;

void UnigramSegmenter::encode(std::string_view piece,
                              std::vector<uint32_t> &out) {
  auto size = static_cast<uint32_t>(piece.size());
  positions.assign(size_t{size} + 1, Place{});
  const char *text = piece.data(), *end = text + size;
  for (uint32_t begin = 0; begin < size;) {
    double before = positions[begin].score;
    auto offer = [&](uint32_t at, double score, uint32_t token) {
      if (positions[at].begin == UnigramModel::noToken ||
          before + score > positions[at].score)
        positions[at] = {before + score, begin, token};
    };
    uint32_t length = decodeUtf8(text + begin, end).length;
    bool single = false; // a token of just this character
    uint32_t node = ByteTrie::root;
    for (uint32_t at = begin; at < size; ++at) {
      ByteTrie::Node next = model.trie.step(node, text[at]);
      if (next.next == ByteTrie::root)
        break;
      node = next.next;
      if (next.value != 0) {
        offer(at + 1, model.scores[next.value - 1], next.value - 1);
        single |= at + 1 == begin + length;
      }
    }
    if (!single)
      offer(begin + length, model.lowestScore - unknownPenalty, model.unknown);
    begin += length;
  }

  path.clear();
  for (uint32_t at = size; at > 0; at = positions[at].begin) {
    const Place &place = positions[at];
    // Neighbours that are unknown become one; `score` is not needed any more.
    if (place.token == model.unknown && !path.empty() &&
        path.back().token == model.unknown)
      path.back().begin = place.begin;
    else
      path.push_back(place);
  }
  for (size_t i = path.size(); i-- > 0;) {
    uint32_t stop = i == 0 ? size : path[i - 1].begin;
    if (path[i].token == model.unknown)
      appendUnknown(piece.substr(path[i].begin, stop - path[i].begin), out);
    else
      out.push_back(path[i].token);
  }
}

void UnigramSegmenter::appendUnknown(std::string_view text,
                                     std::vector<uint32_t> &out) {
  // An unknown stretch may spell a token, the unknown one itself for instance.
  ByteTrie::Node node;
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (node = model.trie.step(node.next, text[at]); node.next == 0)
      break;
  if (at == text.size() && node.value != 0)
    return out.push_back(node.value - 1);
  bool bytes = model.byteFallback;
  for (char byte : text)
    bytes &= model.fallbackTokens[static_cast<uint8_t>(byte)] !=
             UnigramModel::noToken;
  if (!bytes)
    return out.push_back(model.unknown);
  for (char byte : text)
    out.push_back(model.fallbackTokens[static_cast<uint8_t>(byte)]);
}

} // namespace tessera::tokenizer
