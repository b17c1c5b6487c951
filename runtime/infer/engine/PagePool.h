// The pages of a KV cache, and its prefix cache: sequences that begin alike
// share pages. Each page counts its users. Full pages without users stay
// findable by their tokens until their memory is needed.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

/// A sequence's pages. The published ones form a path in the pool's tree.
struct PageList {
  std::vector<int32_t> pages;
  int64_t published = 0; ///< full pages in the prefix cache
  uint64_t node = 0;     ///< end of the path; at first its root
};

/// The root of the prefixes that are computed with an adapter: keys and values
/// depend on it. `adapter` is the number of its contents, which is never
/// reused; 0: none.
constexpr uint64_t rootOf(uint64_t adapter) {
  return adapter == 0 ? 0 : uint64_t(1) << 63 | adapter;
}

/// Finds prefixes by their tokens, page by page down a tree; a hash collision
/// could give one sequence another's keys and values.
class PagePool {
public:
  /// `pages` of `page` tokens each.
  PagePool(int64_t pages, int64_t page);

  /// Pages that can be taken: the unused, and those kept only in the prefix
  /// cache.
  int64_t available() const { return int64_t(unused.size() + idle.size()); }
  /// Of these, the pages kept in the prefix cache.
  int64_t kept() const { return int64_t(idle.size()); }
  int64_t size() const { return int64_t(all.size()); }
  /// Number of tokens of the longest cached prefix of full pages below `root`.
  int64_t findPrefix(std::span<const int32_t> tokens, uint64_t root = 0) const;
  /// Takes the pages of that prefix into an empty list, which is then of that
  /// root.
  int64_t takePrefix(std::span<const int32_t> tokens, PageList &list,
                     uint64_t root = 0);
  /// Adds pages until the list holds `tokens`; changes nothing if too few are
  /// available. Evicts the least recently used pages first.
  bool grow(PageList &list, int64_t tokens);
  /// Adds the full pages of a sequence, of which `tokens` are computed, to the
  /// prefix cache.
  void publish(PageList &list, std::span<const int32_t> tokens);
  /// Drops one use of each page; the list is empty again.
  void release(PageList &list);

private:
  /// A page's key in the tree: its parent and its tokens.
  using Key = std::pair<uint64_t, std::vector<int32_t>>;
  struct Node {
    int32_t page;
    uint64_t id; ///< never reused
  };
  using Tree = std::map<Key, Node>;
  struct Page {
    int64_t users = 0;
    std::optional<Tree::iterator> node; ///< if in the prefix cache
    std::list<int32_t>::iterator place; ///< in `idle`, while unused
  };
  int32_t takeOne();
  template <typename Visit>
  int64_t walk(std::span<const int32_t> tokens, uint64_t root,
               const Visit &visit) const;

  int64_t page;
  std::vector<Page> all;
  std::vector<int32_t> unused;
  /// Unused pages of the prefix cache, least recently used first. The end of a
  /// path precedes its beginning, so that a page is never evicted before its
  /// descendants.
  std::list<int32_t> idle;
  Tree tree;
  uint64_t nodes = 0;
};

} // namespace tessera
