#include "hardware/HostFile.h"

#include <algorithm>

#include <fmt/format.h>

#include "hardware/Quantity.h"
#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

constexpr std::size_t maxRows = 4096;

/// One of `names`, as its index.
YamlKey yamlName(std::string_view key, std::span<const std::string_view> names,
                 std::size_t &to) {
  return {key, true, [=, &to](const YAML::Node &node) -> Status {
            std::string text;
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, text));
            const auto found = std::ranges::find(names, text);
            to = std::size_t(found - names.begin());
            if (found != names.end())
              return Status::success();
            return Status::error("{}: expected one of {}", quote(text),
                                 fmt::join(names, ", "));
          }};
}

/// In single quotes, where a quote is written twice.
std::string yamlQuoted(std::string_view text) {
  std::string result = "'";
  for (const char each : oneLine(text))
    result += each == '\'' ? std::string("''") : std::string(1, each);
  return result + "'";
}

std::string rate(double perSecond, const char *unit) {
  return fmt::format("{:.4g}G{}", perSecond / 1e9, unit);
}

std::string microseconds(double seconds) {
  constexpr double kLeast = 1e-9; // quantities are more than 0
  return fmt::format("{:.4g}us", std::max(seconds, kLeast) * 1e6);
}

std::string printMemory(const char *prefix, const MemoryRate &memory) {
  return fmt::format("  {0}_read: {1}\n  {0}_write: {2}\n  {0}_copy: {3}\n",
                     prefix, rate(memory.read, "B/s"),
                     rate(memory.write, "B/s"), rate(memory.copy, "B/s"));
}

} // namespace

Status HostReader::readKernels(const YAML::Node &node, Host &host) {
  std::vector<YamlKey> kinds;
  for (std::size_t i = 0; i < kKernelKinds.size(); ++i)
    kinds.push_back(
        {kKernelKinds[i], true, [this, &host, i](const YAML::Node &one) {
           KernelRate &rate = host.kernels[i];
           return section(
               one, "cpu.kernels." + std::string(kKernelKinds[i]) + ".",
               {yamlQuantity("launch", rate.launch, Unit::Seconds),
                yamlQuantity("flops", rate.flops, Unit::FlopsPerSecond, false),
                yamlQuantity("bytes", rate.bytes, Unit::BytesPerSecond,
                             false)});
         }});
  return section(node, "cpu.kernels.", kinds);
}

Status HostReader::readProcessor(const YAML::Node &node, Host &host) {
  constexpr Unit kRate = Unit::BytesPerSecond;
  return section(node, "cpu.",
                 {yamlText("name", host.processor),
                  yamlInteger("cores", host.cores, 1 << 16),
                  yamlQuantity("memory", host.memory, Unit::Bytes),
                  yamlQuantity("cache", host.cache, Unit::Bytes, false),
                  yamlQuantity("speedup", host.speedup, Unit::Count),
                  yamlQuantity("core_read", host.core.read, kRate, false),
                  yamlQuantity("core_write", host.core.write, kRate, false),
                  yamlQuantity("core_copy", host.core.copy, kRate, false),
                  yamlQuantity("all_read", host.all.read, kRate, false),
                  yamlQuantity("all_write", host.all.write, kRate, false),
                  yamlQuantity("all_copy", host.all.copy, kRate, false),
                  {"kernels", true, [&](const YAML::Node &kernels) {
                     return readKernels(kernels, host);
                   }}});
}

Status HostReader::readCollectives(const YAML::Node &node, Host &host) {
  if (!node.IsSequence() || node.size() > maxRows)
    return Status::error("must be a list of at most {} rows", maxRows);
  for (const YAML::Node &each : node) {
    CollectiveRate row;
    std::size_t kind = 0;
    TESSERA_RETURN_IF_ERROR(section(
        each, "collectives.",
        {yamlName("kind", kHostCollectives, kind),
         yamlInteger("ranks", row.ranks, 1 << 16),
         yamlInteger("group", row.group, 1 << 16),
         yamlQuantity("latency", row.latency, Unit::Seconds),
         yamlQuantity("bandwidth", row.bandwidth, Unit::BytesPerSecond)}));
    row.kind = HostCollective(kind);
    host.collectives.push_back(row);
  }
  return Status::success();
}

std::string printHostFile(const std::string &name, const Host &host) {
  std::string text =
      fmt::format("name: {}\ncpu:\n  name: {}\n  cores: {}\n  memory: {:.0f}B\n"
                  "  speedup: {:.3g} # of kernels on all cores over one\n",
                  yamlQuoted(name), yamlQuoted(host.processor), host.cores,
                  host.memory, host.speedup);
  if (host.cache > 0)
    text += fmt::format("  cache: {:.0f}B\n", host.cache);
  text += printMemory("core", host.core) + printMemory("all", host.all);
  text += "  kernels: # on one core: launch + FLOPs / flops + bytes / bytes\n";
  for (std::size_t i = 0; i < kKernelKinds.size(); ++i) {
    const KernelRate &one = host.kernels[i];
    text += fmt::format("    {}: {{launch: {}", kKernelKinds[i],
                        microseconds(one.launch));
    if (one.flops > 0)
      text += ", flops: " + rate(one.flops, "FLOP/s");
    if (one.bytes > 0)
      text += ", bytes: " + rate(one.bytes, "B/s");
    text += "}\n";
  }
  if (!host.collectives.empty())
    text += "collectives: # groups of all ranks at once\n";
  for (const CollectiveRate &row : host.collectives)
    text += fmt::format("  - {{kind: {}, ranks: {}, group: {}, latency: {}, "
                        "bandwidth: {}}}\n",
                        kHostCollectives[std::size_t(row.kind)], row.ranks,
                        row.group, microseconds(row.latency),
                        rate(row.bandwidth, "B/s"));
  return text;
}

} // namespace tessera::planner
