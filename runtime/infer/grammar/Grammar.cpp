#include "runtime/infer/grammar/Grammar.h"

#include <algorithm>
#include <numeric>

namespace tessera::grammar {

uint32_t Grammar::addRule() {
  starts.push_back(addNode());
  return uint32_t(starts.size() - 1);
}

uint32_t Grammar::addNode() {
  hasOverflowed |= nodes.size() == kMaxNodes;
  if (hasOverflowed)
    return 0;
  nodes.emplace_back();
  return uint32_t(nodes.size() - 1);
}

void Grammar::addEdge(uint32_t from, const Edge &edge) {
  hasOverflowed |= edges == kMaxEdges;
  if (hasOverflowed)
    return;
  nodes[from].edges.push_back(edge);
  ++edges;
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

/// The rules that match some string over edges of these kinds; calls count if
/// the called rule does. Every node belongs to one rule, so each is visited
/// once.
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

/// The rules of one cycle of "begins with"; empty if there is none.
static std::vector<uint32_t>
rulesInCycles(const std::vector<std::vector<uint32_t>> &begins) {
  // A topological order (Kahn) exists if no rule begins with itself.
  std::vector<size_t> users(begins.size());
  for (const auto &each : begins)
    for (uint32_t rule : each)
      ++users[rule];
  std::vector<uint32_t> todo;
  for (uint32_t rule = 0; rule < users.size(); ++rule)
    if (users[rule] == 0)
      todo.push_back(rule);
  while (!todo.empty()) {
    uint32_t rule = todo.back();
    todo.pop_back();
    for (uint32_t next : begins[rule])
      if (--users[next] == 0)
        todo.push_back(next);
  }
  // Every remaining rule has a remaining user, so walking back reaches a cycle.
  std::vector<uint32_t> user(begins.size(), UINT32_MAX);
  uint32_t at = UINT32_MAX;
  for (uint32_t rule = 0; rule < begins.size(); ++rule)
    if (users[rule] > 0)
      for (uint32_t next : begins[rule])
        user[at = next] = rule;
  if (at == UINT32_MAX)
    return {};
  for (size_t i = 0; i < begins.size(); ++i)
    at = user[at];
  std::vector<uint32_t> circle = {at};
  for (uint32_t next = user[at]; next != at; next = user[next])
    circle.push_back(next);
  std::ranges::sort(circle);
  return circle;
}

Status Grammar::checkBeginnings(const RuleName &nameOf) const {
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
  std::vector<uint32_t> left = rulesInCycles(begins);
  if (left.empty())
    return Status::success();
  // Report the first of them that has a name.
  for (uint32_t rule : left)
    if (std::string name = nameOf ? nameOf(rule) : ""; !name.empty())
      return Status::error(
          "{} begins with itself (left recursion); write it as a "
          "repetition",
          name);
  return Status::error("it refers to itself before any character");
}

/// Nodes that only skip to an end, or to nothing, become that. The last call of
/// a rule is then known to be the last, and lists written as right recursion do
/// not nest (Matcher::follow).
void Grammar::shortenEnds() {
  std::vector<std::vector<uint32_t>> skippedFrom(nodes.size());
  std::vector<uint32_t> ending, going;
  std::vector<bool> ends(nodes.size()), goesOn(nodes.size());
  for (uint32_t at = 0; at < nodes.size(); ++at) {
    bool hasText = false;
    for (const Edge &edge : nodes[at].edges)
      if (edge.kind == Edge::Kind::skip)
        skippedFrom[edge.target].push_back(at);
      else
        hasText = true;
    if (hasText)
      going.push_back(at);
    if (nodes[at].isFinal)
      ending.push_back(at);
  }
  auto spread = [&](std::vector<uint32_t> todo, std::vector<bool> &known) {
    while (!todo.empty()) {
      uint32_t at = todo.back();
      todo.pop_back();
      if (known[at])
        continue;
      known[at] = true;
      todo.insert(todo.end(), skippedFrom[at].begin(), skippedFrom[at].end());
    }
  };
  spread(std::move(ending), ends);
  spread(std::move(going), goesOn);
  for (uint32_t at = 0; at < nodes.size(); ++at)
    if (!goesOn[at])
      nodes[at] = {{}, ends[at]};
}

/// Redirects edges to nodes that only skip, since the number of positions is
/// bounded. Call after shortenEnds(), which leaves no cycle of such nodes.
void Grammar::passOverSkips() {
  std::vector<uint32_t> to(nodes.size());
  auto skips = [&](uint32_t at) {
    return !nodes[at].isFinal && nodes[at].edges.size() == 1 &&
           nodes[at].edges[0].kind == Edge::Kind::skip;
  };
  std::iota(to.begin(), to.end(), 0);
  std::vector<uint32_t> passed;
  for (uint32_t first = 0; first < nodes.size(); ++first) {
    uint32_t at = first;
    passed.clear();
    while (to[at] == at && skips(at)) {
      passed.push_back(at);
      at = nodes[at].edges[0].target;
    }
    for (uint32_t each : passed)
      to[each] = to[at];
  }
  for (Node &node : nodes)
    for (Edge &edge : node.edges)
      edge.target = to[edge.target];
}

Status Grammar::finish(const RuleName &nameOf) {
  if (hasOverflowed && edges == kMaxEdges)
    return Status::error("it is too large: more than {} steps between states",
                         kMaxEdges);
  if (hasOverflowed)
    return Status::error("it is too large: more than {} states", kMaxNodes);
  std::vector<bool> finite = rulesThatEnd(/*withBytes=*/true);
  if (!finite[0]) {
    // A rule with a name has a better error.
    if (nameOf)
      TESSERA_RETURN_IF_ERROR(checkBeginnings(nameOf));
    for (uint32_t rule = 0; nameOf && rule < starts.size(); ++rule)
      if (std::string name = finite[rule] ? "" : nameOf(rule); !name.empty())
        return Status::error("{} matches no finite string", name);
    return Status::error("no finite string matches it");
  }
  for (Node &node : nodes)
    std::erase_if(node.edges, [&](const Edge &edge) {
      return edge.kind == Edge::Kind::call && !finite[edge.rule];
    });
  shortenEnds();
  passOverSkips();
  return checkBeginnings(nameOf);
}

void Grammar::beginWithSpace() {
  std::vector<Edge> &edges = nodes[starts[0]].edges;
  if (edges.size() == 1 && edges[0].kind == Edge::Kind::skip)
    edges[0] = {Edge::Kind::bytes, ' ', ' ', 0, edges[0].target};
}

} // namespace tessera::grammar
