// An order that is kept while groups merge, against paths that are searched
// for.
#include "passes/fusion/GroupOrder.h"
#include "llvm/ADT/SmallVector.h"
#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace tessera;

namespace {

/// Nodes with edges from lower to higher numbers, in groups.
struct Groups {
  Groups(unsigned nodes, unsigned edges, std::mt19937 &engine) {
    for (unsigned node = 0; node < nodes; ++node) {
      order.append();
      members.push_back({node});
    }
    for (unsigned i = 0; i < edges; ++i) {
      unsigned a = engine() % nodes, b = engine() % nodes;
      if (a != b)
        successors[std::min(a, b)].insert(std::max(a, b));
    }
  }

  unsigned groupOf(unsigned node) const {
    for (unsigned id = 0; id < members.size(); ++id)
      if (members[id].count(node))
        return id;
    return ~0u;
  }

  bool hasEdge(unsigned a, unsigned b) const {
    for (unsigned node : members[a])
      if (auto users = successors.find(node); users != successors.end())
        for (unsigned user : users->second)
          if (a != b && members[b].count(user))
            return true;
    return false;
  }

  /// Whether a path leads from a to b, through a third group if `far`.
  bool hasPath(unsigned a, unsigned b, bool far) const {
    std::set<unsigned> seen{a};
    llvm::SmallVector<unsigned> work{a};
    while (!work.empty()) {
      unsigned at = work.pop_back_val();
      for (unsigned next = 0; next < members.size(); ++next) {
        if (!hasEdge(at, next) || (far && at == a && next == b))
          continue;
        if (next == b)
          return true;
        if (seen.insert(next).second)
          work.push_back(next);
      }
    }
    return false;
  }

  void merge(unsigned a, unsigned b) {
    order.merge(a, b, [&](unsigned id, llvm::function_ref<void(unsigned)> use) {
      for (unsigned from = 0; from < members.size(); ++from)
        if (hasEdge(from, id))
          use(from);
    });
    members[a].insert(members[b].begin(), members[b].end());
    members[b].clear();
  }

  void dissolve(unsigned id) {
    std::set<unsigned> nodes = std::exchange(members[id], {});
    order.replace(id, nodes.size());
    for (unsigned node : nodes)
      members.push_back({node});
  }

  void check() const {
    for (unsigned a = 0; a < members.size(); ++a)
      for (unsigned b = 0; b < members.size(); ++b)
        if (hasEdge(a, b))
          EXPECT_TRUE(order.mayPrecede(a, b)) << a << " before " << b;
  }

  GroupOrder order;
  std::vector<std::set<unsigned>> members;
  std::map<unsigned, std::set<unsigned>> successors;
};

TEST(GroupOrder, HoldsAfterMergingAndDissolving) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 engine(seed);
    unsigned nodes = 4 + engine() % 20;
    Groups groups(nodes, engine() % (2 * nodes), engine);
    for (unsigned i = 0; i < 3 * nodes; ++i) {
      unsigned a = groups.groupOf(engine() % nodes),
               b = groups.groupOf(engine() % nodes);
      if (a != b && !groups.hasPath(a, b, true) && !groups.hasPath(b, a, true))
        groups.merge(a, b);
      else if (engine() % 8 == 0)
        groups.dissolve(a);
      groups.check();
    }
  }
}

TEST(GroupOrder, KeepsWhatStandsBetween) {
  // 0 → 1, and 2 and 3 of nobody: what 0 reaches goes behind 0 and 3 together.
  std::mt19937 engine(0);
  Groups groups(4, 0, engine);
  groups.successors[0].insert(1);
  groups.merge(0, 3);
  EXPECT_TRUE(groups.order.mayPrecede(0, 1));
  EXPECT_TRUE(groups.order.mayPrecede(2, 0));
}

} // namespace
