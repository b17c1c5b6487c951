// The reader of cluster files: a table of keys for each section.
#include <cmath>
#include <functional>
#include <set>

#include "hardware/Cluster.h"
#include "hardware/Quantity.h"
#include "runtime/recipe/YamlDocument.h"
#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

constexpr int64_t maxFileBytes = 1 << 16;
constexpr size_t maxTiers = 8;

/// A key of a section and what it sets; the error does not say where.
struct Key {
  std::string_view name;
  bool required;
  std::function<Status(const YAML::Node &)> store;
};

Status scalarOf(const YAML::Node &node, std::string &to) {
  if (!node.IsScalar() || node.Scalar().empty())
    return Status::error("must be one value");
  to = node.Scalar();
  return Status::success();
}

Key text(std::string_view name, std::string &to) {
  return {name, true,
          [&to](const YAML::Node &node) { return scalarOf(node, to); }};
}

Key quantity(std::string_view name, double &to, Unit unit,
             bool required = true) {
  return {name, required, [&to, unit](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(scalarOf(node, given));
            StatusOr<double> value = parseQuantity(given, unit);
            if (!value.ok())
              return value.status();
            to = *value;
            return Status::success();
          }};
}

Key integer(std::string_view name, int64_t &to, int64_t most,
            bool required = true) {
  return {name, required, [&to, most](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(scalarOf(node, given));
            StatusOr<double> value = parseQuantity(given, Unit::Count);
            if (!value.ok())
              return value.status();
            if (*value != std::floor(*value) || *value > double(most))
              return Status::error("{} must be a whole number, at most {}",
                                   quote(given), most);
            to = int64_t(*value);
            return Status::success();
          }};
}

/// In (0, 1].
Key fraction(std::string_view name, double &to) {
  return {name, true, [&to](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(scalarOf(node, given));
            StatusOr<double> value = parseQuantity(given, Unit::Count);
            if (!value.ok())
              return value.status();
            if (*value > 1)
              return Status::error(
                  "{} must be a fraction, more than 0 and at most 1",
                  quote(given));
            to = *value;
            return Status::success();
          }};
}

Key flag(std::string_view name, bool &to) {
  return {name, false, [&to](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(scalarOf(node, given));
            if (given != "true" && given != "false")
              return Status::error("{} must be true or false", quote(given));
            to = given == "true";
            return Status::success();
          }};
}

class Reader {
public:
  explicit Reader(std::string file) : file(std::move(file)) {}

  StatusOr<Cluster> read(const YAML::Node &document) {
    Cluster cluster;
    cluster.gpu.launch = 0;
    std::vector<Key> keys = {
        text("name", cluster.name),
        integer("nodes", cluster.nodes, 1 << 17),
        integer("gpus_per_node", cluster.gpusPerNode, 1 << 10),
        quantity("price_per_gpu_hour", cluster.pricePerGpuHour, Unit::Count,
                 false),
        quantity("gpu_mtbf", cluster.gpuMtbf, Unit::Seconds, false),
        quantity("checkpoint_blocking", cluster.checkpointBlocking,
                 Unit::Seconds, false),
        quantity("restart", cluster.restart, Unit::Seconds, false),
        {"gpu", true,
         [&](const YAML::Node &node) { return readGpu(node, cluster.gpu); }},
        {"links", true,
         [&](const YAML::Node &node) { return readLinks(node, cluster); }}};
    TESSERA_RETURN_IF_ERROR(section(document, "", keys));
    TESSERA_RETURN_IF_ERROR(finishLinks(cluster));
    return cluster;
  }

private:
  Status readGpu(const YAML::Node &node, Gpu &gpu) {
    std::vector<Key> keys = {
        text("name", gpu.name),
        quantity("memory", gpu.memory, Unit::Bytes),
        quantity("memory_bandwidth", gpu.memoryBandwidth, Unit::BytesPerSecond),
        quantity("bf16", gpu.bf16, Unit::FlopsPerSecond),
        quantity("fp8", gpu.fp8, Unit::FlopsPerSecond, false),
        integer("multiprocessors", gpu.multiprocessors, 1 << 12),
        quantity("clock_mhz", gpu.clock, Unit::Count),
        fraction("sustained_clock", gpu.sustainedClock),
        flag("asynchronous", gpu.asynchronous),
        quantity("launch", gpu.launch, Unit::Seconds)};
    TESSERA_RETURN_IF_ERROR(section(node, "gpu.", keys));
    gpu.clock *= 1e6;
    return Status::success();
  }

  Status readLinks(const YAML::Node &node, Cluster &cluster) {
    if (!node.IsSequence() || node.size() == 0 || node.size() > maxTiers)
      return Status::error("must be a list of 1 to {} tiers, nearest first",
                           maxTiers);
    for (const YAML::Node &each : node) {
      LinkTier tier;
      double perGpu = 0, perNode = 0;
      std::vector<Key> keys = {
          text("name", tier.name),
          integer("span", tier.span, 1 << 20, false),
          quantity("per_gpu", perGpu, Unit::BytesPerSecond, false),
          quantity("per_node", perNode, Unit::BytesPerSecond, false),
          {"bandwidth", false,
           [&](const YAML::Node &value) -> Status {
             TESSERA_RETURN_IF_ERROR(scalarOf(value, tier.ambiguous));
             return parseQuantity(tier.ambiguous, Unit::BytesPerSecond)
                 .status();
           }},
          fraction("efficiency", tier.efficiency),
          quantity("latency", tier.latency, Unit::Seconds)};
      TESSERA_RETURN_IF_ERROR(section(each, "links.", keys));
      if ((perGpu > 0) + (perNode > 0) + !tier.ambiguous.empty() != 1)
        return Status::error("{}: give one of per_gpu, per_node, or bandwidth "
                             "where it is not known which of the two it is",
                             quote(tier.name));
      if (perGpu > 0)
        tier.perGpu = perGpu;
      if (perNode > 0) // made a GPU's when the node's size is known
        tier.perGpu = -perNode;
      cluster.links.push_back(std::move(tier));
    }
    return Status::success();
  }

  Status finishLinks(Cluster &cluster) {
    int64_t before = 0;
    for (size_t i = 0; i < cluster.links.size(); ++i) {
      LinkTier &tier = cluster.links[i];
      if (tier.perGpu && *tier.perGpu < 0)
        tier.perGpu = -*tier.perGpu / double(cluster.gpusPerNode);
      bool last = i + 1 == cluster.links.size();
      if (!last &&
          (tier.span <= before || (before > 0 && tier.span % before != 0)))
        return Status::error(
            "{}: key 'links': tier {} spans {} GPUs; spans are "
            "multiples of the one before, which is {}, and only "
            "the last may be left out",
            file, quote(tier.name), tier.span, before);
      if (last && tier.span != 0 && tier.span < cluster.gpus())
        return Status::error("{}: key 'links': the last tier spans {} of {} "
                             "GPUs; leave span out, it joins all",
                             file, tier.span, cluster.gpus());
      if (i == 0 && !tier.perGpu)
        return Status::error("{}: key 'links': tier {} is inside a node: give "
                             "per_gpu",
                             file, quote(tier.name));
      before = tier.span;
      if (last)
        tier.span = 0;
    }
    if (cluster.nodes > 1 && cluster.links.size() < 2)
      return Status::error("{}: key 'links': {} nodes need a tier between them",
                           file, cluster.nodes);
    return Status::success();
  }

  /// Every key once, no unknown one, every required one.
  Status section(const YAML::Node &node, const std::string &prefix,
                 const std::vector<Key> &keys) {
    if (!node.IsMap())
      return at(node, prefix, "must be a section of keys and values");
    std::set<std::string> seen;
    for (const auto &entry : node) {
      if (!entry.first.IsScalar())
        return at(entry.first, prefix, "keys must be plain words");
      const std::string &name = entry.first.Scalar();
      if (!seen.insert(name).second)
        return at(entry.first, prefix + name, "is given twice; keep one");
      TESSERA_RETURN_IF_ERROR(value(entry.first, entry.second, prefix, keys));
    }
    for (const Key &key : keys)
      if (key.required && !seen.contains(std::string(key.name)))
        return at(node, prefix + std::string(key.name), "is missing; add it");
    return Status::success();
  }

  Status value(const YAML::Node &keyNode, const YAML::Node &node,
               const std::string &prefix, const std::vector<Key> &keys) {
    std::vector<std::string_view> names;
    for (const Key &key : keys) {
      if (key.name == keyNode.Scalar()) {
        Status status = key.store(node);
        if (status.ok() || located)
          return status;
        return at(keyNode, prefix + keyNode.Scalar(), status.message());
      }
      names.push_back(key.name);
    }
    return at(keyNode, prefix + keyNode.Scalar(),
              "is not a key here" + suggestion(keyNode.Scalar(), names));
  }

  /// An error with its location; outer sections forward it unchanged.
  Status at(const YAML::Node &node, const std::string &key,
            const std::string &what) {
    located = true;
    return Status::error("{}:{}: key {}: {}", file, node.Mark().line + 1,
                         quote(key), what);
  }

  std::string file;
  bool located = false;
};

} // namespace

StatusOr<Cluster> parseCluster(std::string_view text, const std::string &file) {
  if (text.size() > size_t(maxFileBytes))
    return Status::error("{}: is larger than {} bytes", file, maxFileBytes);
  StatusOr<Cluster> cluster = Cluster();
  Status status = recipe::readYaml(text, file, [&](const YAML::Node &document) {
    cluster = Reader(file).read(document);
    return cluster.status();
  });
  if (!status.ok())
    return status;
  return cluster;
}

StatusOr<Cluster> loadCluster(const std::string &path) {
  StatusOr<std::string> text = readTextFile(path, maxFileBytes);
  if (!text.ok())
    return text.status();
  return parseCluster(*text, path);
}

} // namespace tessera::planner
