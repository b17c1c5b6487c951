#include "tools/iopddl/ReadIopddl.h"

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

namespace tessera::iopddl {

using solver::Problem;

namespace {

/// Collects lists of lists of natural numbers by the path of their member.
/// An instance has tens of millions of numbers, so no document is built.
class Reader : public nlohmann::json_sax<nlohmann::json> {
public:
  std::string name, error;
  std::vector<std::vector<std::int64_t>> intervals, nodeCosts, usages;
  std::vector<std::vector<std::int64_t>> edgeNodes, edgeCosts;
  std::int64_t usageLimit = -1;

  bool null() override { return expectSkipped("null"); }
  bool boolean(bool) override { return expectSkipped("a boolean"); }
  bool number_integer(number_integer_t) override {
    return expectSkipped("a negative number");
  }
  bool number_float(number_float_t, const string_t &) override {
    return expectSkipped("a number with a fraction or of more than 64 bits");
  }
  bool number_unsigned(number_unsigned_t value) override {
    const auto number = static_cast<std::int64_t>(
        std::min<std::uint64_t>(value, solver::kInfinite));
    if (listDepth == 2 && list)
      list->back().push_back(number);
    else if (listDepth == 0 && path == "problem.usage_limit")
      usageLimit = number;
    else
      return expectSkipped("a number");
    return true;
  }
  bool string(string_t &value) override {
    if (listDepth == 0 && path == "problem.name")
      name = value;
    else
      return expectSkipped("a string");
    return true;
  }
  bool binary(binary_t &) override { return false; }

  bool start_object(std::size_t) override {
    if (list)
      return refuse("an object");
    if (lengths.size() == kMaxDepth)
      return refuse("an object nested too deeply");
    lengths.push_back(path.size());
    return true;
  }
  bool key(string_t &name) override {
    // An array outside the known lists may hold objects.
    path.resize(lengths.back());
    if (name.size() > kMaxName)
      return refuse("a member with a long name");
    if (!path.empty())
      path += '.';
    path += name;
    return true;
  }
  bool end_object() override {
    path.resize(lengths.back());
    lengths.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    if (listDepth == 0)
      list = listOf(path);
    ++listDepth;
    if (list && listDepth == 1 && !list->empty())
      return refuse("a second list");
    if (list && listDepth == 2)
      list->emplace_back();
    return !list || listDepth <= 2 || refuse("a list three deep");
  }
  bool end_array() override {
    if (--listDepth == 0)
      list = nullptr;
    return true;
  }
  bool parse_error(std::size_t position, const std::string &,
                   const nlohmann::detail::exception &) override {
    error = fmt::format("byte {}: not valid JSON", position);
    return false;
  }

private:
  static constexpr std::size_t kMaxDepth = 32, kMaxName = 200;

  std::vector<std::vector<std::int64_t>> *listOf(std::string_view path) {
    if (path == "problem.nodes.intervals")
      return &intervals;
    if (path == "problem.nodes.costs")
      return &nodeCosts;
    if (path == "problem.nodes.usages")
      return &usages;
    if (path == "problem.edges.nodes")
      return &edgeNodes;
    if (path == "problem.edges.costs")
      return &edgeCosts;
    return nullptr;
  }
  bool isOurs() {
    return list || path == "problem" || path == "problem.name" ||
           path == "problem.nodes" || path == "problem.edges" ||
           path == "problem.usage_limit" || listOf(path);
  }
  bool expectSkipped(std::string_view what) {
    return !isOurs() || refuse(what);
  }
  bool refuse(std::string_view what) {
    error =
        fmt::format("{} holds {}", path.empty() ? "the document" : path, what);
    return false;
  }

  /// Member names from the root, joined by dots, and the length of that path
  /// outside each open object.
  std::string path;
  std::vector<std::size_t> lengths;
  /// The list being read (null outside the known lists) and the number of open
  /// arrays.
  std::vector<std::vector<std::int64_t>> *list = nullptr;
  std::size_t listDepth = 0;
};

} // namespace

static StatusOr<Problem> buildProblem(Reader &read) {
  Problem problem;
  if (read.nodeCosts.empty())
    return Status::error("problem.nodes.costs is missing or empty");
  if (read.intervals.size() != read.nodeCosts.size() ||
      read.usages.size() != read.nodeCosts.size())
    return Status::error("problem.nodes has {} intervals, {} costs and {} "
                         "usages; the numbers must be equal",
                         read.intervals.size(), read.nodeCosts.size(),
                         read.usages.size());
  if (read.edgeNodes.size() != read.edgeCosts.size())
    return Status::error(
        "problem.edges has {} nodes and {} costs; the numbers must be equal",
        read.edgeNodes.size(), read.edgeCosts.size());
  problem.name = std::move(read.name);
  problem.usageLimit = read.usageLimit;
  for (std::size_t i = 0; i < read.nodeCosts.size(); ++i) {
    solver::Node node;
    const std::vector<std::int64_t> &interval = read.intervals[i];
    if (!interval.empty() && interval.size() != 2)
      return Status::error("problem.nodes.intervals: node {} has {} numbers "
                           "instead of two or none",
                           i, interval.size());
    if (interval.size() == 2) {
      node.begin = interval[0];
      node.end = interval[1];
    }
    node.costs = std::move(read.nodeCosts[i]);
    node.usages = std::move(read.usages[i]);
    problem.nodes.push_back(std::move(node));
  }
  for (std::size_t i = 0; i < read.edgeNodes.size(); ++i) {
    const std::vector<std::int64_t> &ends = read.edgeNodes[i];
    const auto count = static_cast<std::int64_t>(problem.nodes.size());
    if (ends.size() != 2 || ends[0] >= count || ends[1] >= count)
      return Status::error(
          "problem.edges.nodes: edge {} is not two of {} nodes", i, count);
    problem.edges.push_back({static_cast<int>(ends[0]),
                             static_cast<int>(ends[1]),
                             std::move(read.edgeCosts[i])});
  }
  TESSERA_RETURN_IF_ERROR(solver::validate(problem));
  return problem;
}

StatusOr<Problem> parseProblem(std::string_view text, std::string_view where) {
  Reader read;
  if (!nlohmann::json::sax_parse(text, &read))
    return Status::error("{}: {}", where, read.error);
  StatusOr<Problem> problem = buildProblem(read);
  if (!problem.ok())
    return Status::error("{}: {}", where, problem.message());
  return problem;
}

/// zlib returns uncompressed input unchanged.
static StatusOr<std::string> readText(const std::string &path) {
  constexpr std::size_t kMaxText = std::size_t(4) << 30;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"),
                                                  gzclose);
  if (!file)
    return Status::error("{}: cannot be opened", path);
  gzbuffer(file.get(), 1 << 18);
  std::string text;
  static thread_local std::array<char, 1 << 18> buffer;
  while (int count = gzread(file.get(), buffer.data(), buffer.size())) {
    if (count < 0)
      return Status::error("{}: cannot be read, or is truncated or damaged",
                           path);
    if (text.size() + count > kMaxText)
      return Status::error("{}: more than 4 GiB of JSON", path);
    text.append(buffer.data(), count);
  }
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (code != Z_OK)
    return Status::error("{}: cannot be read, or is truncated or damaged",
                         path);
  return text;
}

StatusOr<Problem> readProblem(const std::string &path) {
  StatusOr<std::string> text = readText(path);
  if (!text.ok())
    return text.status();
  return parseProblem(*text, path);
}

std::string formatChoice(std::span<const int> choice) {
  return fmt::format("[{}]", fmt::join(choice, ", "));
}

} // namespace tessera::iopddl
