#include "runtime/infer/grammar/Grammar.h"

namespace tessera::grammar {

uint32_t Grammar::addRule() {
  starts.push_back(addNode());
  return uint32_t(starts.size() - 1);
}

uint32_t Grammar::addNode() {
  if (nodes.size() == kMaxNodes) {
    hasOverflowed = true;
    return 0;
  }
  nodes.emplace_back();
  return uint32_t(nodes.size() - 1);
}

void Grammar::addEdge(uint32_t from, const Edge &edge) {
  if (!hasOverflowed)
    nodes[from].edges.push_back(edge);
}

void Grammar::addSkip(uint32_t from, uint32_t to) {
  addEdge(from, {Edge::Kind::skip, 0, 0, 0, to});
}

void Grammar::addBytes(uint32_t from, uint8_t first, uint8_t last,
                       uint32_t to) {
  addEdge(from, {Edge::Kind::bytes, first, last, 0, to});
}

void Grammar::addCall(uint32_t from, uint32_t rule, uint32_t to) {
  addEdge(from, {Edge::Kind::call, 0, 0, rule, to});
}

uint32_t Grammar::addText(uint32_t from, std::string_view text) {
  for (char each : text) {
    uint32_t next = addNode();
    addBytes(from, uint8_t(each), uint8_t(each), next);
    from = next;
  }
  return from;
}

/// The rules that have a text of edges of these kinds, calls among them if what
/// they call has one. Every node belongs to one rule, so each is seen once.
std::vector<bool> Grammar::rulesThatEnd(bool withBytes) const {
  struct Place {
    uint32_t node, rule;
  };
  std::vector<bool> known(starts.size()), seen(nodes.size());
  std::vector<std::vector<Place>> waiting(starts.size());
  std::vector<Place> todo;
  for (uint32_t rule = 0; rule < starts.size(); ++rule)
    todo.push_back({starts[rule], rule});
  while (!todo.empty()) {
    auto [at, rule] = todo.back();
    todo.pop_back();
    if (seen[at])
      continue;
    seen[at] = true;
    if (nodes[at].isFinal && !known[rule]) {
      known[rule] = true;
      todo.insert(todo.end(), waiting[rule].begin(), waiting[rule].end());
    }
    for (const Edge &edge : nodes[at].edges) {
      if (edge.kind == Edge::Kind::call && !known[edge.rule])
        waiting[edge.rule].push_back({edge.target, rule});
      else if (edge.kind != Edge::Kind::bytes || withBytes)
        todo.push_back({edge.target, rule});
    }
  }
  return known;
}

Status Grammar::checkBeginnings() const {
  std::vector<bool> empty = rulesThatEnd(/*withBytes=*/false);
  // The rules with which each may begin, before any byte.
  std::vector<std::vector<uint32_t>> begins(starts.size());
  std::vector<bool> seen(nodes.size());
  std::vector<uint32_t> todo;
  for (uint32_t rule = 0; rule < starts.size(); ++rule) {
    todo = {starts[rule]};
    seen[todo.front()] = true;
    while (!todo.empty()) {
      const Node &node = nodes[todo.back()];
      todo.pop_back();
      for (const Edge &edge : node.edges) {
        bool isCall = edge.kind == Edge::Kind::call;
        if (isCall)
          begins[rule].push_back(edge.rule);
        bool passes =
            edge.kind == Edge::Kind::skip || (isCall && empty[edge.rule]);
        if (passes && !seen[edge.target]) {
          seen[edge.target] = true;
          todo.push_back(edge.target);
        }
      }
    }
  }
  // Kahn's order exists where no rule begins with itself.
  std::vector<size_t> users(starts.size());
  for (const auto &each : begins)
    for (uint32_t rule : each)
      ++users[rule];
  todo.clear();
  for (uint32_t rule = 0; rule < users.size(); ++rule)
    if (users[rule] == 0)
      todo.push_back(rule);
  size_t done = 0;
  for (; !todo.empty(); ++done) {
    uint32_t rule = todo.back();
    todo.pop_back();
    for (uint32_t next : begins[rule])
      if (--users[next] == 0)
        todo.push_back(next);
  }
  if (done != starts.size())
    return Status::error("it refers to itself before any text");
  return Status::success();
}

Status Grammar::finish() {
  if (hasOverflowed)
    return Status::error("it is too large: more than {} states", kMaxNodes);
  std::vector<bool> finite = rulesThatEnd(/*withBytes=*/true);
  if (!finite[0])
    return Status::error("no finite text satisfies it");
  for (Node &node : nodes)
    std::erase_if(node.edges, [&](const Edge &edge) {
      return edge.kind == Edge::Kind::call && !finite[edge.rule];
    });
  return checkBeginnings();
}

} // namespace tessera::grammar
