#include "runtime/infer/grammar/Vocabulary.h"

#include <algorithm>
#include <tuple>

namespace tessera::grammar {

Vocabulary::Vocabulary(std::span<const std::string> strings)
    : tokens(strings.begin(), strings.end()) {
  for (uint32_t i = 0; i < tokens.size(); ++i)
    if (!tokens[i].empty())
      order.push_back(i);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return std::tie(tokens[a], a) < std::tie(tokens[b], b);
  });
  nodes.emplace_back();
  std::vector<uint32_t> path = {0}; // from the root to the last token
  for (uint32_t i = 0; i < order.size(); ++i) {
    const std::string &text = tokens[order[i]];
    const std::string &last = i ? tokens[order[i - 1]] : std::string();
    size_t shared =
        size_t(std::ranges::mismatch(text, last).in1 - text.begin());
    for (; path.size() > shared + 1; path.pop_back())
      nodes[path.back()].end = uint32_t(nodes.size());
    for (size_t at = shared; at < text.size(); ++at) {
      path.push_back(uint32_t(nodes.size()));
      TrieNode node;
      node.depth = uint32_t(at + 1);
      node.firstToken = node.lastToken = i;
      node.byte = uint8_t(text[at]);
      nodes.push_back(node);
    }
    nodes[path.back()].lastToken = i + 1;
    deepest = std::max(deepest, uint32_t(text.size()));
  }
  for (uint32_t node : path)
    nodes[node].end = uint32_t(nodes.size());
}

} // namespace tessera::grammar
