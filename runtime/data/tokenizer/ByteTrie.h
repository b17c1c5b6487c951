// A trie of byte strings, each with a number: finds the longest token at a
// position, or all tokens there.
#pragma once
#include "runtime/data/tokenizer/PairMap.h"

#include <cstdint>
#include <string_view>

namespace tessera::tokenizer {

class ByteTrie {
public:
  static constexpr uint32_t root = 0;
  /// A place in the trie, 0 (the root, which nothing leads to) for none, and 1
  /// plus the number of the text that ends there, 0 for none.
  struct Node {
    uint32_t next = 0;
    uint32_t value = 0;
  };

  /// `text` is not empty; of one that is added twice the later number counts.
  void add(std::string_view text, uint32_t number) {
    uint32_t node = root;
    for (size_t i = 0; i < text.size(); ++i) {
      Node &edge = edges[makePair(node, static_cast<uint8_t>(text[i]))];
      if (edge.next == 0)
        edge.next = nodes++;
      node = edge.next;
      if (i + 1 == text.size())
        edge.value = number + 1;
    }
  }

  /// Where `byte` leads from `node`.
  Node step(uint32_t node, char byte) const {
    const Node *edge = edges.find(makePair(node, static_cast<uint8_t>(byte)));
    return edge ? *edge : Node{};
  }

private:
  PairMap<Node> edges;
  uint32_t nodes = 1;
};

} // namespace tessera::tokenizer
