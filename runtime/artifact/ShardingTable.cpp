#include "runtime/artifact/ShardingTable.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

namespace tessera::artifact {
namespace {

// "h.3.attn" is "h.#.attn".
std::string withoutLayer(std::string_view name) {
  std::string result;
  while (true) {
    const std::string_view part = name.substr(0, name.find('.'));
    const bool isNumber =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
          return c >= '0' && c <= '9';
        });
    result += isNumber ? "#" : part;
    if (part.size() == name.size())
      return result;
    result += '.';
    name.remove_prefix(part.size() + 1);
  }
}

std::string factorText(const Artifact &artifact, const Cut &cut) {
  std::string text = fmt::format("{}", cut.size());
  if (cut.axes())
    for (const std::uint32_t axis : *cut.axes())
      text += fmt::format("/{}", toView(artifact.mesh()->Get(axis)->name()));
  return text;
}

std::uint64_t wholeBytes(const Tensor &tensor) {
  const std::vector<std::uint64_t> shape = globalShape(tensor);
  const std::uint64_t elements =
      std::accumulate(shape.begin(), shape.end(), std::uint64_t(1),
                      [](std::uint64_t a, std::uint64_t b) { return a * b; });
  return elements * elementBytes(tensor.type());
}

/// Adds up the state, share by share.
class StateCounter {
public:
  explicit StateCounter(const Artifact &artifact) : artifact(artifact) {}
  void add(const Share &share);
  std::vector<ShardingRow> take();

private:
  ShardingRow &rowOf(const Tensor &tensor);

  /// By the place of the parameter, and then what tells its rows apart.
  using Key = std::tuple<std::size_t, Role, ElementType, std::string>;

  const Artifact &artifact;
  std::map<Key, ShardingRow> rows;
  /// The order in which parameters were seen.
  std::map<std::string, std::size_t> order;
};

ShardingRow &StateCounter::rowOf(const Tensor &tensor) {
  std::string_view name = toView(tensor.name()), part;
  if (tensor.role() == Role::optimizer)
    if (const auto dot = name.rfind('.'); dot != name.npos) {
      part = name.substr(dot + 1);
      name = name.substr(0, dot);
    }
  const std::string pattern = withoutLayer(name);
  const auto place = order.try_emplace(pattern, order.size()).first;
  ShardingRow &row = rows[Key(place->second, tensor.role(), tensor.type(),
                              shardingText(artifact, tensor))];
  if (row.tensors.empty()) {
    row.first = &tensor;
    row.name = pattern;
  }
  if (!part.empty() &&
      std::find(row.parts.begin(), row.parts.end(), part) == row.parts.end())
    row.parts.push_back(part);
  return row;
}

void StateCounter::add(const Share &share) {
  std::map<ShardingRow *, std::uint64_t> own;
  for (const Tensor *tensor : *share.state()) {
    ShardingRow &row = rowOf(*tensor);
    own[&row] += tensor->bytes();
    if (row.tensors.insert(toView(tensor->name())).second)
      row.bytes += wholeBytes(*tensor);
  }
  for (const auto &[row, bytes] : own) {
    row->ranks += share.ranks()->size();
    row->rankBytes = std::max(row->rankBytes, bytes);
  }
}

std::vector<ShardingRow> StateCounter::take() {
  std::vector<ShardingRow> list;
  for (auto &[key, row] : rows)
    list.push_back(std::move(row));
  return list;
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.3g}", static_cast<double>(bytes) / 1e6);
}

std::string tensorText(const Artifact &artifact, const Tensor &tensor) {
  return fmt::format("{} {} {}", EnumNameRole(tensor.role()),
                     EnumNameElementType(tensor.type()),
                     shardingText(artifact, tensor));
}

} // namespace

std::string shardingText(const Artifact &artifact, const Tensor &tensor) {
  std::vector<std::string> dims;
  if (!tensor.cuts())
    for (const std::int64_t size : *tensor.shape())
      dims.push_back(fmt::format("{}", size));
  else
    for (const DimCut *dim : *tensor.cuts()) {
      std::vector<std::string> factors;
      for (const Cut *cut : *dim->factors())
        factors.push_back(factorText(artifact, *cut));
      dims.push_back(fmt::format("{}", fmt::join(factors, " x ")));
    }
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::vector<ShardingRow> shardingRows(const Artifact &artifact) {
  StateCounter counter(artifact);
  for (const Share *share : *artifact.shares())
    counter.add(*share);
  return counter.take();
}

std::string shardingTable(const Artifact &artifact, const Program &program) {
  const std::uint32_t ranks = Mesh(artifact).ranks();
  std::string text =
      "state: over which axes it is cut; # is the number of a layer\n"
      " tensors  whole MB  a rank MB  what\n";
  for (const ShardingRow &row : shardingRows(artifact)) {
    text += fmt::format("{:>8} {:>9} {:>10}  {}  {}", row.tensors.size(),
                        megabytes(row.bytes), megabytes(row.rankBytes),
                        tensorText(artifact, *row.first), row.name);
    if (!row.parts.empty())
      text += fmt::format(": {}", fmt::join(row.parts, ", "));
    text += row.ranks == ranks
                ? "\n"
                : fmt::format("; on {} of {} ranks\n", row.ranks, ranks);
  }
  text += fmt::format("inputs and outputs of {}:\n", toView(program.name()));
  for (const auto *list : {program.inputs(), program.outputs()})
    for (const Tensor *tensor : *list)
      text += fmt::format("  {}  {}\n", tensorText(artifact, *tensor),
                          toView(tensor->name()));
  return text;
}

} // namespace tessera::artifact
