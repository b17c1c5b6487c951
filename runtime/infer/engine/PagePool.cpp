#include "runtime/infer/engine/PagePool.h"

#include <numeric>

namespace tessera {

PagePool::PagePool(int64_t pages, int64_t page) : page(page), all(pages) {
  unused.resize(pages);
  std::iota(unused.rbegin(), unused.rend(), 0);
}

template <typename Visit>
int64_t PagePool::walk(std::span<const int32_t> tokens, uint64_t root,
                       const Visit &visit) const {
  uint64_t at = root;
  int64_t found = 0;
  while (int64_t(tokens.size()) - found >= page) {
    auto part = tokens.subspan(found, page);
    auto next = tree.find(Key(at, {part.begin(), part.end()}));
    if (next == tree.end())
      break;
    visit(next->second);
    at = next->second.id;
    found += page;
  }
  return found;
}

int64_t PagePool::findPrefix(std::span<const int32_t> tokens,
                             uint64_t root) const {
  return walk(tokens, root, [](const Node &) {});
}

int64_t PagePool::takePrefix(std::span<const int32_t> tokens, PageList &list,
                             uint64_t root) {
  list.node = root;
  return walk(tokens, root, [&](const Node &node) {
    Page &taken = all[node.page];
    if (taken.users++ == 0)
      idle.erase(taken.place);
    list.pages.push_back(node.page);
    list.published = int64_t(list.pages.size());
    list.node = node.id;
  });
}

int32_t PagePool::takeOne() {
  int32_t taken = 0;
  if (!unused.empty()) {
    taken = unused.back();
    unused.pop_back();
  } else {
    taken = idle.front();
    idle.pop_front();
    tree.erase(*all[taken].node);
    all[taken].node.reset();
  }
  all[taken].users = 1;
  return taken;
}

bool PagePool::grow(PageList &list, int64_t tokens) {
  int64_t wanted = (tokens + page - 1) / page;
  if (wanted - int64_t(list.pages.size()) > available())
    return false;
  while (int64_t(list.pages.size()) < wanted)
    list.pages.push_back(takeOne());
  return true;
}

void PagePool::publish(PageList &list, std::span<const int32_t> tokens) {
  while ((list.published + 1) * page <= int64_t(tokens.size())) {
    auto part = tokens.subspan(list.published * page, page);
    int32_t own = list.pages[list.published];
    auto [place, isNew] = tree.try_emplace(
        Key(list.node, {part.begin(), part.end()}), Node{own, nodes + 1});
    if (isNew) {
      ++nodes;
      all[own].node = place;
    }
    // If another sequence has published the same tokens, this page stays
    // private.
    list.node = place->second.id;
    ++list.published;
  }
}

void PagePool::release(PageList &list) {
  for (auto each = list.pages.rbegin(); each != list.pages.rend(); ++each) {
    Page &left = all[*each];
    if (--left.users > 0)
      continue;
    if (left.node)
      left.place = idle.insert(idle.end(), *each);
    else
      unused.push_back(*each);
  }
  list = {};
}

} // namespace tessera
