// Context-free grammars over bytes, as automata that call one another
// (recursive transition networks; Woods 1970).
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::grammar {

/// Leads from one node to another: over a byte, over nothing, or over a string
/// of another rule.
struct Edge {
  enum class Kind : uint8_t { bytes, skip, call };
  Kind kind = Kind::skip;
  uint8_t first = 0, last = 0; ///< of kind bytes: the range, inclusive
  uint32_t rule = 0;           ///< of kind call
  uint32_t target = 0;
};

struct Node {
  std::vector<Edge> edges;
  bool isFinal = false; ///< a string of the node's rule may end here
};

/// Rules and their nodes. Rule 0 is the start.
class Grammar {
public:
  /// Larger grammars are an error: this bounds the memory and the time of
  /// everything that is computed from them.
  static constexpr size_t kMaxNodes = size_t(1) << 17,
                          kMaxEdges = 4 * kMaxNodes;

  /// A rule that matches nothing yet. Once there are kMaxNodes nodes or
  /// kMaxEdges edges, nothing is added any more and calls return existing
  /// nodes; finish() reports it.
  uint32_t addRule();
  uint32_t addNode();
  bool isFull() const { return hasOverflowed; }
  uint32_t startOf(uint32_t rule) const { return starts[rule]; }
  void setFinal(uint32_t node) { nodes[node].isFinal = true; }

  void addSkip(uint32_t from, uint32_t to);
  void addBytes(uint32_t from, uint8_t first, uint8_t last, uint32_t to);
  void addCall(uint32_t from, uint32_t rule, uint32_t to);
  /// Adds the bytes of `text`; returns the node after them.
  uint32_t addText(uint32_t from, std::string_view text);

  const Node &node(uint32_t index) const { return nodes[index]; }
  /// Whether the node is final and has no edges.
  bool isEnd(uint32_t index) const {
    return nodes[index].isFinal && nodes[index].edges.empty();
  }
  size_t size() const { return nodes.size(); }
  size_t rules() const { return starts.size(); }

  /// Call once, when the grammar is complete. Removes calls of rules that match
  /// no finite string. Errors: a grammar that matches nothing, too many nodes
  /// or edges, and left recursion, which a matcher would follow forever. Errors
  /// begin with the name of the rule, unless that is empty.
  using RuleName = std::function<std::string(uint32_t rule)>;
  Status finish(const RuleName &nameOf = {});
  /// After finish(): puts a space before every string. Rule 0 must begin with a
  /// single skip; a grammar that matches only the empty string is unchanged.
  void beginWithSpace();

private:
  std::vector<bool> rulesThatEnd(bool withBytes) const;
  void shortenEnds();
  void passOverSkips();
  Status checkBeginnings(const RuleName &nameOf) const;

  void addEdge(uint32_t from, const Edge &edge);

  std::vector<Node> nodes;
  std::vector<uint32_t> starts; ///< of rules
  size_t edges = 0;             ///< added to all nodes
  bool hasOverflowed = false;
};

} // namespace tessera::grammar
