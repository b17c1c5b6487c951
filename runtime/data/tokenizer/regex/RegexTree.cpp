#include "runtime/data/tokenizer/regex/RegexTree.h"

#include <algorithm>

namespace tessera::tokenizer {

using Kind = RegexNode::Kind;

RegexNode sequenceOf(RegexNode first, RegexNode second) {
  RegexNode node;
  node.kind = Kind::Concat;
  node.children.push_back(std::move(first));
  node.children.push_back(std::move(second));
  return node;
}

RegexNode notFollowedBy(const CodePointSet &set) {
  RegexNode node;
  node.kind = Kind::FollowedBy;
  node.set = set.complement();
  node.orEnd = true;
  return node;
}

bool mayBeEmpty(const RegexNode &node) {
  auto empty = [](const RegexNode &child) { return mayBeEmpty(child); };
  switch (node.kind) {
  case Kind::Empty:
  case Kind::FollowedBy:
  case Kind::Begin:
    return true;
  case Kind::Set:
    return false;
  case Kind::Concat:
    return std::all_of(node.children.begin(), node.children.end(), empty);
  case Kind::Alternate:
    return std::any_of(node.children.begin(), node.children.end(), empty);
  case Kind::Repeat:
    return node.least == 0 || mayBeEmpty(node.children[0]);
  }
  return false;
}

bool collectNext(const RegexNode &node, CodePointSet &set, bool &end) {
  switch (node.kind) {
  case Kind::Set:
    set.add(node.set);
    return true;
  case Kind::FollowedBy:
    set.add(node.set);
    end |= node.orEnd;
    return true;
  case Kind::Alternate:
    for (const RegexNode &child : node.children)
      if (!collectNext(child, set, end))
        return false;
    return true;
  case Kind::Concat:
    return node.children.size() == 1 && collectNext(node.children[0], set, end);
  default:
    return false;
  }
}

} // namespace tessera::tokenizer
