// Context-free grammars over bytes, as automata that call one another
// (recursive transition networks; Woods 1970): what a text may be.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::grammar {

/// Leads from one node to another: for a byte, for nothing, or for a text of
/// another rule.
struct Edge {
  enum class Kind : uint8_t { bytes, skip, call };
  Kind kind = Kind::skip;
  uint8_t first = 0, last = 0; ///< of bytes: the range, inclusive
  uint32_t rule = 0;           ///< of a call
  uint32_t target = 0;
};

struct Node {
  std::vector<Edge> edges;
  bool isFinal = false; ///< a text of the node's rule may end here
};

/// Rules and their nodes. Rule 0 is the text as a whole.
class Grammar {
public:
  /// Beyond this a grammar is refused: it bounds the memory and the time of
  /// everything that is made of it.
  static constexpr size_t kMaxNodes = size_t(1) << 17,
                          kMaxEdges = 4 * kMaxNodes;

  /// A rule that has no text yet. Once there are kMaxNodes nodes or kMaxEdges
  /// edges nothing is added any more: numbers are then those of old ones, until
  /// finish() says so.
  uint32_t addRule();
  uint32_t addNode();
  bool isFull() const { return hasOverflowed; }
  uint32_t startOf(uint32_t rule) const { return starts[rule]; }
  void setFinal(uint32_t node) { nodes[node].isFinal = true; }

  void addSkip(uint32_t from, uint32_t to);
  void addBytes(uint32_t from, uint8_t first, uint8_t last, uint32_t to);
  void addCall(uint32_t from, uint32_t rule, uint32_t to);
  /// The bytes of `text` one after another; where that leads to.
  uint32_t addText(uint32_t from, std::string_view text);

  const Node &node(uint32_t index) const { return nodes[index]; }
  /// Its rule ends there, and only that.
  bool isEnd(uint32_t index) const {
    return nodes[index].isFinal && nodes[index].edges.empty();
  }
  size_t size() const { return nodes.size(); }
  size_t rules() const { return starts.size(); }

  /// To be called once, when all is there. Takes away calls of rules that have
  /// no finite text; refuses a grammar without any text, one of more
  /// nodes or edges than that, and rules that begin with themselves, of which a
  /// reader would never see the end; the error begins with what is said of such
  /// a rule, unless that is empty.
  using RuleName = std::function<std::string(uint32_t rule)>;
  Status finish(const RuleName &nameOf = {});
  /// Afterwards: texts have a space before them. Rule 0 must begin with nothing
  /// but one skip; where its only text is the empty one nothing changes.
  void beginWithSpace();

private:
  std::vector<bool> rulesThatEnd(bool withBytes) const;
  void shortenEnds();
  void passOverSkips();
  Status checkBeginnings(const RuleName &nameOf) const;

  void addEdge(uint32_t from, const Edge &edge);

  std::vector<Node> nodes;
  std::vector<uint32_t> starts; ///< of rules
  size_t edges = 0;             ///< of all nodes, as they were added
  bool hasOverflowed = false;
};

} // namespace tessera::grammar
