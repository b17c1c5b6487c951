// The pages of a cache, shared by the sequences that begin alike: each page
// counts its users, and whole pages whose users have gone stay findable by
// their tokens until their room is needed.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

/// A text's pages. What is published of them is a path in the pool's tree.
struct PageList {
  std::vector<int32_t> pages;
  int64_t published = 0; ///< whole pages that others may find
  uint64_t node = 0;     ///< where the path ends; 0: the root
};

/// Finds prefixes by their tokens themselves, page by page down a tree, so that
/// no collision of hashes can give one text another's keys and values.
class PagePool {
public:
  /// `pages` of `page` tokens each.
  PagePool(int64_t pages, int64_t page);

  /// Pages that can be taken: the unused, and those kept for their tokens only.
  int64_t available() const { return int64_t(unused.size() + idle.size()); }
  /// Of those the ones kept for their tokens.
  int64_t kept() const { return int64_t(idle.size()); }
  int64_t size() const { return int64_t(all.size()); }
  /// Of the largest prefix of whole pages: the number of tokens that are
  /// cached.
  int64_t findPrefix(std::span<const int32_t> tokens) const;
  /// The same, taken into an empty list.
  int64_t takePrefix(std::span<const int32_t> tokens, PageList &list);
  /// Adds pages until the list holds `tokens`, or changes nothing if they are
  /// not to be had. The longest unused are given up first.
  bool grow(PageList &list, int64_t tokens);
  /// Lets others find the whole pages of a text of which `tokens` are computed.
  void publish(PageList &list, std::span<const int32_t> tokens);
  /// Gives up one use of each page; the list is empty again.
  void release(PageList &list);

private:
  /// Where a page stands in the tree: after its parent, with its tokens.
  using Key = std::pair<uint64_t, std::vector<int32_t>>;
  struct Node {
    int32_t page;
    uint64_t id; ///< never used twice
  };
  using Tree = std::map<Key, Node>;
  struct Page {
    int64_t users = 0;
    std::optional<Tree::iterator> node; ///< if others can find it
    std::list<int32_t>::iterator place; ///< in `idle`, while it has no users
  };
  int32_t takeOne();
  template <typename Visit>
  int64_t walk(std::span<const int32_t> tokens, const Visit &visit) const;

  int64_t page;
  std::vector<Page> all;
  std::vector<int32_t> unused;
  /// Without users but findable, the longest unused first. Of a path the end
  /// stands before the beginning, so that no page outlives its way there.
  std::list<int32_t> idle;
  Tree tree;
  uint64_t nodes = 0;
};

} // namespace tessera
