// A vocabulary's tokens by the bytes that they add to a text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::grammar {

/// A trie in the order in which a walk meets its nodes: a subtree is a range.
class Vocabulary {
public:
  struct TrieNode {
    uint32_t end = 0;   ///< the node behind the subtree
    uint32_t depth = 0; ///< bytes from the root, whose depth is 0
    /// The tokens that end here: a range of `order`.
    uint32_t firstToken = 0, lastToken = 0;
    uint8_t byte = 0; ///< that leads here
  };

  /// Token i adds texts[i]; one that adds nothing, such as a special token, is
  /// never in a mask.
  explicit Vocabulary(std::span<const std::string> texts);

  size_t size() const { return tokens.size(); }
  const std::string &text(uint32_t token) const { return tokens[token]; }
  /// Node 0 is the root.
  std::span<const TrieNode> trie() const { return nodes; }
  std::span<const uint32_t> endingAt(const TrieNode &node) const {
    return std::span(order).subspan(node.firstToken,
                                    node.lastToken - node.firstToken);
  }
  /// Bytes of the longest token.
  uint32_t longest() const { return deepest; }

private:
  std::vector<std::string> tokens;
  std::vector<uint32_t> order; ///< tokens with text, by their bytes
  std::vector<TrieNode> nodes;
  uint32_t deepest = 0;
};

} // namespace tessera::grammar
