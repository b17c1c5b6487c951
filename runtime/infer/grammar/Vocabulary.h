// A vocabulary's tokens by the bytes that they decode to.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::grammar {

/// A trie in depth-first order: a subtree is a range.
class Vocabulary {
public:
  struct TrieNode {
    uint32_t end = 0;   ///< the node after the subtree
    uint32_t depth = 0; ///< bytes from the root, whose depth is 0
    /// The tokens that end here: a range of `order`.
    uint32_t firstToken = 0, lastToken = 0;
    uint8_t byte = 0; ///< of the edge from the parent
  };

  /// Token i decodes to strings[i]; empty ones, such as special tokens, are
  /// never in a mask.
  explicit Vocabulary(std::span<const std::string> strings);

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
  std::vector<uint32_t> order; ///< nonempty tokens, sorted by bytes
  std::vector<TrieNode> nodes;
  uint32_t deepest = 0;
};

} // namespace tessera::grammar
