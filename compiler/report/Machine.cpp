#include "compiler/report/Machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "compiler/report/Json.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/PeakFlops.h"
#include "runtime/support/Text.h"

namespace tessera::report {

using artifact::toView;

/// Of a rank to its neighbors on one machine, through memory.
static void linkThroughMemory(Machine &machine) {
  machine.link = hardware::defaultRates().links.front().link;
  machine.linkName = "memory of one machine";
}

/// Of a GPU whose links are not in the table.
static void linkByDefault(Machine &machine) {
  machine.link = hardware::defaultRates().links.front().link;
  machine.linkName = "a link of 100 GB/s, assumed";
}

static void linkThroughNvlink(Machine &machine, const hardware::Chip &chip) {
  machine.link = chip.nvlink;
  machine.linkName = "NVLink";
}

Machine machineOf(const hardware::Chip &chip) {
  Machine machine{.name = std::string(chip.name),
                  .source = "data sheet",
                  .peaks = chip.peaks,
                  .bytes = chip.sm->memoryBandwidth,
                  .link = {},
                  .linkName = {}};
  linkThroughNvlink(machine, chip);
  return machine;
}

Machine machineOf(const planner::Cluster &cluster) {
  const planner::Gpu &gpu = cluster.gpu;
  const hardware::Chip *chip = hardware::findChip(gpu.name);
  const planner::LinkTier &tier = cluster.links.front();
  // Cores have one rate, which was measured in fp32.
  const double tf32 = cluster.host ? 1 : 2, fp32 = cluster.host ? 1 : 16;
  return {.name = gpu.name,
          .source = "cluster " + cluster.name,
          // A cluster file has no peaks but those of tensor cores in bf16.
          .peaks = {.bf16 = gpu.bf16,
                    .tf32 = chip ? chip->peaks.tf32 : gpu.bf16 / tf32,
                    .fp32 = chip ? chip->peaks.fp32 : gpu.bf16 / fp32},
          .bytes = gpu.memoryBandwidth,
          .link = {.bytes = tier.rate(), .latency = tier.latency},
          .linkName = tier.name};
}

/// Bytes per second, read and written, of all threads copying at once.
static double measureCopy(unsigned threads) {
  constexpr std::size_t kBytes = std::size_t(64) << 20; // of a thread
  constexpr int kRounds = 3;
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<char>> from(threads), to(threads);
  auto run = [&](auto body) {
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t)
      all.emplace_back(body, t);
    for (std::thread &each : all)
      each.join();
  };
  run([&](unsigned t) { // touches the pages
    from[t].assign(kBytes, 1);
    to[t].assign(kBytes, 2);
  });
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    run([&](unsigned t) { std::memcpy(to[t].data(), from[t].data(), kBytes); });
    const std::chrono::duration<double> took = Clock::now() - start;
    best = std::max(best, 2.0 * double(kBytes) * threads / took.count());
  }
  return best;
}

Machine measureThisMachine() {
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  Machine machine;
  machine.name = CpuFeatures::brand();
  machine.source = fmt::format("measured on {} threads", threads);
  machine.peaks.fp32 = measureFastestPeak(PeakType::fp32, threads).perSecond;
  machine.peaks.bf16 = measureFastestPeak(PeakType::bf16, threads).perSecond;
  machine.peaks.tf32 = machine.peaks.fp32;
  machine.bytes = measureCopy(threads);
  linkThroughMemory(machine);
  return machine;
}

StatusOr<Measurements> parseMeasurements(std::string_view text,
                                         const std::string &path) {
  const Json json = Json::parse(text, nullptr, false);
  auto number = [](const Json &object, const char *key) {
    return object.is_object() && object.contains(key) && object[key].is_number()
               ? object[key].get<double>()
               : 0.0;
  };
  if (!json.is_object() || !json.contains("kernels") ||
      !json["kernels"].is_array() || !json.contains("peaks"))
    return Status::error(
        "{}: not a file that tessera bench kernels --json writes", path);
  Measurements result;
  auto word = [&](const char *key) {
    return json.contains(key) && json[key].is_string()
               ? oneLine(json[key].get<std::string>())
               : std::string();
  };
  result.device = word("device");
  result.program = word("program");
  Machine &machine = result.machine;
  machine.name =
      result.device + (word("target").empty() ? "" : ", ") + word("target");
  machine.source = "tessera bench kernels";
  machine.peaks = {.bf16 = number(json["peaks"], "bf16"),
                   .tf32 = number(json["peaks"], "tf32"),
                   .fp32 = number(json["peaks"], "fp32")};
  machine.bytes = number(json, "copy_bytes_per_second");
  // By the device, since its code may be that of another target, or PTX.
  const hardware::Chip *chip = hardware::findChip(result.device);
  if (chip && chip->nvlink.bytes > 0)
    linkThroughNvlink(machine, *chip);
  else if (result.device.starts_with("cuda"))
    linkByDefault(machine);
  else
    linkThroughMemory(machine);
  // One kernel may have been measured at several sizes: the mean of a launch.
  std::map<std::string, std::pair<double, double>> sums;
  for (const Json &kernel : json["kernels"]) {
    if (!kernel.is_object() || !kernel.contains("name") ||
        !kernel["name"].is_string())
      return Status::error("{}: a kernel without name", path);
    auto &[seconds, launches] = sums[kernel["name"].get<std::string>()];
    const double runs = std::max(1.0, number(kernel, "launches"));
    seconds += runs * number(kernel, "seconds");
    launches += runs;
  }
  for (const auto &[name, sum] : sums)
    result.seconds[name] = sum.first / sum.second;
  return result;
}

double StepClock::peak(const artifact::Kernel &kernel) const {
  return artifact::peakOf(machine_.peaks, kernel);
}

double StepClock::atBest(const artifact::Kernel &kernel, double flops,
                         double bytes) const {
  const double flopsPerSecond = peak(kernel);
  return std::max(machine_.bytes > 0 ? bytes / machine_.bytes : 0,
                  flopsPerSecond > 0 ? flops / flopsPerSecond : 0);
}

std::optional<double>
StepClock::measuredSeconds(const artifact::Kernel &kernel) const {
  if (!measured)
    return std::nullopt;
  auto found = measured->seconds.find(toView(kernel.name()));
  return found == measured->seconds.end() ? std::nullopt
                                          : std::optional(found->second);
}

double StepClock::seconds(const artifact::Launch &launch,
                          const artifact::Kernel &kernel) const {
  if (auto known = measuredSeconds(kernel))
    return *known;
  return atBest(kernel,
                double(kernel.flops()) * double(launch.instances()->size()),
                double(artifact::launchBytes(launch, kernel)));
}

double StepClock::seconds(const artifact::Collective &one,
                          double members) const {
  using Kind = artifact::CollectiveKind;
  const auto from = double(one.from()->bytes()), to = double(one.to()->bytes());
  const double bytes = one.kind() == Kind::exchange_rows ? std::min(from, to)
                                                         : std::max(from, to);
  double turns = members - 1, sent = bytes * (1 - 1 / members);
  if (one.kind() == Kind::permute) {
    turns = 1;
    sent = bytes;
  } else if (one.kind() == Kind::all_reduce) {
    turns *= 2;
    sent *= 2;
  }
  return turns * machine_.link.latency +
         (machine_.link.bytes > 0 ? sent / machine_.link.bytes : 0);
}

} // namespace tessera::report
