#include "runtime/artifact/CollectiveTable.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace tessera::artifact {
namespace {

using Nodes = flatbuffers::Vector<flatbuffers::Offset<Node>>;

std::string axisNames(const Artifact &artifact, const Collective &one) {
  std::vector<std::string_view> names;
  for (const std::uint32_t axis : *one.axes())
    names.push_back(toView(artifact.mesh()->Get(axis)->name()));
  return fmt::format("{}", fmt::join(names, ","));
}

/// Launches of some steps, and what they touch.
struct Work {
  std::uint64_t launches = 0, bytes = 0;
};

Work workOf(const Node &node) {
  Work work;
  if (const Loop *loop = node.step_as_Loop()) {
    if (loop->count())
      return work; // rounds that most steps do not have
    for (const Node *inner : *loop->body()) {
      const Work turn = workOf(*inner);
      work.launches += loop->trip() * turn.launches;
      work.bytes += loop->trip() * turn.bytes;
    }
  } else if (const Launch *launch = node.step_as_Launch()) {
    work.launches = 1;
    for (const Instance *instance : *launch->instances())
      for (const Arg *arg : *instance->args())
        work.bytes += arg->bytes();
  }
  return work;
}

/// Adds up the collectives of a program.
class CollectiveCounter {
public:
  explicit CollectiveCounter(const Artifact &artifact) : artifact(artifact) {}
  void nodes(const Nodes &nodes, std::uint64_t times);
  std::vector<CollectiveRow> rows;

private:
  void add(const Collective &one, std::uint64_t times, Work overlapped);
  static Work overlappedWork(const Nodes &nodes, flatbuffers::uoffset_t start);

  const Artifact &artifact;
  std::map<std::string, std::size_t> rowOf;
};

void CollectiveCounter::nodes(const Nodes &nodes, std::uint64_t times) {
  for (flatbuffers::uoffset_t i = 0; i < nodes.size(); ++i) {
    const Node &node = *nodes.Get(i);
    if (const Loop *loop = node.step_as_Loop())
      this->nodes(*loop->body(), loop->count() ? 0 : times * loop->trip());
    else if (const Collective *one = node.step_as_Collective())
      add(*one, times, overlappedWork(nodes, i));
  }
}

// The work of the steps between a collective and its wait, which the validator
// has checked to be in the same list.
Work CollectiveCounter::overlappedWork(const Nodes &nodes,
                                       flatbuffers::uoffset_t start) {
  Work work;
  const std::uint32_t ticket = nodes.Get(start)->step_as_Collective()->ticket();
  if (ticket == 0)
    return work;
  for (flatbuffers::uoffset_t i = start + 1; i < nodes.size(); ++i) {
    const Node &node = *nodes.Get(i);
    if (const Wait *wait = node.step_as_Wait();
        wait && wait->ticket() == ticket)
      break;
    const Work one = workOf(node);
    work.launches += one.launches;
    work.bytes += one.bytes;
  }
  return work;
}

void CollectiveCounter::add(const Collective &one, std::uint64_t times,
                            Work overlapped) {
  const std::string key = fmt::format(
      "{} {} {} {} {} {} {}", static_cast<int>(one.kind()),
      static_cast<int>(one.reduction()), static_cast<int>(one.type()),
      one.from()->bytes(), one.to()->bytes(), one.ticket() != 0,
      fmt::join(one.axes()->begin(), one.axes()->end(), ","));
  const auto [entry, isNew] = rowOf.try_emplace(key, rows.size());
  if (isNew) {
    CollectiveRow &row = rows.emplace_back();
    row.first = &one;
    for (const std::uint32_t axis : *one.axes())
      row.members *= artifact.mesh()->Get(axis)->size();
    // How many rows go where is data; the other side is as large as if all met.
    row.bytes = one.kind() == CollectiveKind::exchange_rows
                    ? std::min(one.from()->bytes(), one.to()->bytes())
                    : std::max(one.from()->bytes(), one.to()->bytes());
    const double others = 1 - 1 / static_cast<double>(row.members);
    row.sent = static_cast<double>(row.bytes) *
               (one.kind() == CollectiveKind::permute      ? 1
                : one.kind() == CollectiveKind::all_reduce ? 2 * others
                                                           : others);
  }
  CollectiveRow &row = rows[entry->second];
  row.runs += times;
  row.launches += times * overlapped.launches;
  row.launchBytes += times * overlapped.bytes;
}

std::string megabytes(double bytes) {
  return fmt::format("{:.3g}", bytes / 1e6);
}

// Of one collective, on average: what runs until the wait for it.
std::string overlapText(const CollectiveRow &row) {
  if (row.first->ticket() == 0)
    return "";
  const auto runs = static_cast<double>(row.runs);
  return fmt::format(", overlapped with {:.3g} launches over {} MB",
                     static_cast<double>(row.launches) / runs,
                     megabytes(static_cast<double>(row.launchBytes) / runs));
}

} // namespace

std::vector<CollectiveRow> collectiveRows(const Artifact &artifact,
                                          const Program &program) {
  CollectiveCounter counter(artifact);
  counter.nodes(*program.steps(), 1);
  return std::move(counter.rows);
}

std::string collectiveTable(const Artifact &artifact, const Program &program) {
  std::uint64_t runs = 0;
  double sent = 0;
  std::string lines;
  for (const CollectiveRow &row : collectiveRows(artifact, program)) {
    runs += row.runs;
    sent += static_cast<double>(row.runs) * row.sent;
    const bool reduces = row.first->kind() == CollectiveKind::all_reduce ||
                         row.first->kind() == CollectiveKind::reduce_scatter;
    lines += fmt::format(
        "{:>6} {:>12} {:>12}  {}{} {} over {} ({}){}\n", row.runs,
        megabytes(static_cast<double>(row.bytes)), megabytes(row.sent),
        EnumNameCollectiveKind(row.first->kind()),
        reduces ? fmt::format(" {}", EnumNameReduction(row.first->reduction()))
                : "",
        EnumNameElementType(row.first->type()), axisNames(artifact, *row.first),
        row.members, overlapText(row));
  }
  return fmt::format(
      "{}: {} collectives, a rank sends {} MB\n{}{}", toView(program.name()),
      runs, megabytes(sent),
      lines.empty() ? "" : "  runs           MB      sent MB  what\n", lines);
}

std::string meshText(const Artifact &artifact) {
  std::string axes;
  if (artifact.mesh())
    for (const MeshAxis *axis : *artifact.mesh())
      axes += fmt::format("{}{}={}", axes.empty() ? "" : ",",
                          toView(axis->name()), axis->size());
  const std::uint32_t ranks = Mesh(artifact).ranks();
  return fmt::format("{}{}{} rank{}", axes, axes.empty() ? "" : ": ", ranks,
                     ranks == 1 ? "" : "s");
}

} // namespace tessera::artifact
