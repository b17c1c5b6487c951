// The reader of cluster files: a table of keys for each section.
#include "hardware/Cluster.h"
#include "hardware/HostFile.h"
#include "hardware/Quantity.h"
#include "hardware/YamlSections.h"
#include "runtime/recipe/YamlDocument.h"
#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

constexpr int64_t maxFileBytes = 1 << 16;
constexpr size_t maxTiers = 8;

class Reader : YamlSections {
public:
  using YamlSections::YamlSections;

  StatusOr<Cluster> read(const YAML::Node &document) {
    if (document.IsMap() && document["cpu"])
      return readHost(document);
    Cluster cluster;
    cluster.gpu.launch = 0;
    std::vector<YamlKey> keys = {
        yamlText("name", cluster.name),
        yamlInteger("nodes", cluster.nodes, 1 << 17),
        yamlInteger("gpus_per_node", cluster.gpusPerNode, 1 << 10),
        yamlQuantity("price_per_gpu_hour", cluster.pricePerGpuHour, Unit::Count,
                     false),
        yamlQuantity("gpu_mtbf", cluster.gpuMtbf, Unit::Seconds, false),
        yamlQuantity("checkpoint_blocking", cluster.checkpointBlocking,
                     Unit::Seconds, false),
        yamlQuantity("restart", cluster.restart, Unit::Seconds, false),
        {"gpu", true,
         [&](const YAML::Node &node) { return readGpu(node, cluster.gpu); }},
        {"links", true,
         [&](const YAML::Node &node) { return readLinks(node, cluster); }}};
    TESSERA_RETURN_IF_ERROR(section(document, "", keys));
    TESSERA_RETURN_IF_ERROR(finishLinks(cluster));
    return cluster;
  }

private:
  StatusOr<Cluster> readHost(const YAML::Node &document) {
    HostReader reader(file);
    std::string name;
    Host host;
    TESSERA_RETURN_IF_ERROR(
        reader.section(document, "",
                       {yamlText("name", name),
                        {"cpu", true,
                         [&](const YAML::Node &node) {
                           return reader.readProcessor(node, host);
                         }},
                        {"collectives", false, [&](const YAML::Node &node) {
                           return reader.readCollectives(node, host);
                         }}}));
    return clusterOf(std::move(name), host, host.cores);
  }

  Status readGpu(const YAML::Node &node, Gpu &gpu) {
    std::vector<YamlKey> keys = {
        yamlText("name", gpu.name),
        yamlQuantity("memory", gpu.memory, Unit::Bytes),
        yamlQuantity("memory_bandwidth", gpu.memoryBandwidth,
                     Unit::BytesPerSecond),
        yamlQuantity("bf16", gpu.bf16, Unit::FlopsPerSecond),
        yamlQuantity("fp8", gpu.fp8, Unit::FlopsPerSecond, false),
        yamlInteger("multiprocessors", gpu.multiprocessors, 1 << 12),
        yamlQuantity("clock_mhz", gpu.clock, Unit::Count),
        yamlFraction("sustained_clock", gpu.sustainedClock),
        yamlFraction("fp8_clock", gpu.fp8Clock, false),
        yamlFraction("clock_spread", gpu.clockSpread, false),
        yamlFlag("asynchronous", gpu.asynchronous),
        yamlQuantity("launch", gpu.launch, Unit::Seconds),
        yamlTarget("target", gpu.target, false)};
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
      std::vector<YamlKey> keys = {
          yamlText("name", tier.name),
          yamlInteger("span", tier.span, 1 << 20, false),
          yamlQuantity("per_gpu", perGpu, Unit::BytesPerSecond, false),
          yamlQuantity("per_node", perNode, Unit::BytesPerSecond, false),
          {"bandwidth", false,
           [&](const YAML::Node &value) -> Status {
             TESSERA_RETURN_IF_ERROR(yamlScalar(value, tier.ambiguous));
             return parseQuantity(tier.ambiguous, Unit::BytesPerSecond)
                 .status();
           }},
          yamlFraction("efficiency", tier.efficiency),
          yamlQuantity("latency", tier.latency, Unit::Seconds)};
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
