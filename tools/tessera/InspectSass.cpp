#include "tools/tessera/InspectSass.h"
#include "compiler/target/cuda/sass/ProgramBounds.h"
#include "runtime/artifact/ElementTypes.h"
#include <algorithm>
#include <fmt/format.h>

using namespace tessera;
using artifact::toView;
using sass::KernelBound;

static constexpr const char *kFormat = " {:>8} {:>9} {:>6} {:>6} {:>4} {:<9}";

static std::string cell(const KernelBound &bound, std::uint64_t generic) {
  const std::string roofline = fmt::format("{:.2f}", 1e6 * bound.roofline),
                    accesses = generic ? fmt::to_string(generic) : "-";
  if (!bound.unknown.empty())
    return fmt::format(fmt::runtime(kFormat), roofline, "?", "?", "?", accesses,
                       "?");
  return fmt::format(
      fmt::runtime(kFormat), roofline,
      fmt::format("{:.2f}{}", 1e6 * bound.latency, bound.isAssumed ? "+" : ""),
      fmt::format("{:.0f}", bound.waits),
      fmt::format("{:.1f}", bound.bytesInFlight / 1024), accesses,
      sass::nameOf(bound.limit));
}

/// Seconds of a program's launches at least, each of the best variant.
static double totalOf(const artifact::DeviceCode &code,
                      const artifact::Program &program,
                      const std::map<std::uint32_t, KernelBound> &bounds) {
  const auto least = [&](std::uint32_t kernel) {
    const KernelBound &bound = bounds.at(kernel);
    return std::max(bound.roofline, bound.latency); // 0 if it is unknown
  };
  double total = 0;
  for (const artifact::KernelRow &row : artifact::kernelRows(code, program)) {
    double best = least(row.number);
    if (row.kernel->variants())
      for (const artifact::Variant *variant : *row.kernel->variants())
        best = std::min(best, least(variant->kernel()));
    total += static_cast<double>(row.launches) * best;
  }
  return total;
}

static std::string legend(const hardware::Chip &chip, double total,
                          const std::vector<std::string_view> &generic) {
  return fmt::format(
      "at least {:.0f} us by the larger of roofline and latency\n"
      "roofline, latency: us of a launch on an {} at least; +: without what "
      "depends on data; ?: it cannot be known\nwaits: for memory, of a block, "
      "one after the other; KiB/SM: in flight on average; LD: generic loads "
      "and "
      "stores\nbinds: bandwidth, FLOPs; FLOPs of the SM with the most blocks "
      "(tail); waits (chain; in flight: of more blocks than fit at once); "
      "instructions (issue, MUFU)\n{}\n",
      1e6 * total, chip.name,
      generic.empty() ? "no kernel has generic loads or stores"
                      : fmt::format("kernels with generic loads or stores: {}",
                                    fmt::join(generic, ", ")));
}

StatusOr<LatencyTable> tessera::latencyTable(const artifact::DeviceCode &code,
                                             const artifact::Program &program) {
  const hardware::Chip *chip = hardware::chipOfTarget(toView(code.device()));
  if (!chip)
    return Status::error("the latencies of GPUs that run {} are unknown",
                         toView(code.device()));
  auto machine = sass::MachineCode::open(code);
  if (!machine.ok())
    return machine.status();
  LatencyTable table;
  std::vector<std::string_view> generic;
  std::map<std::uint32_t, KernelBound> bounds;
  table.columns.heading =
      fmt::format(fmt::runtime(kFormat), "roofline", "latency", "waits",
                  "KiB/SM", "LD", "binds");
  table.columns.cells.resize(code.kernels()->size());
  for (const auto &[number, launches] : sass::launchesOf(code, program)) {
    auto function = machine->find(number);
    if (!function.ok())
      return function.status();
    const artifact::Kernel &kernel = *code.kernels()->Get(number);
    const std::uint64_t accesses = sass::countGeneric(**function);
    if (accesses)
      generic.push_back(toView(kernel.name()));
    const KernelBound &bound = bounds[number] =
        sass::meanBound(kernel, launches, **function, *chip);
    table.columns.cells[number] = cell(bound, accesses);
  }
  table.after = legend(*chip, totalOf(code, program, bounds), generic);
  return table;
}

Status tessera::showSass(const artifact::DeviceCode &code,
                         const artifact::Program &program,
                         std::uint32_t kernel) {
  auto machine = sass::MachineCode::open(code);
  if (!machine.ok())
    return machine.status();
  auto function = machine->find(kernel);
  if (!function.ok())
    return function.status();
  auto text = machine->text(kernel);
  if (!text.ok())
    return text.status();
  const sass::PlannedLaunches launches = sass::launchesOf(code, program);
  const hardware::Chip *chip = hardware::chipOfTarget(toView(code.device()));
  if (auto found = launches.find(kernel); chip && found != launches.end())
    fmt::print("{}", sass::describe(
                         **function,
                         sass::meanBound(*code.kernels()->Get(kernel),
                                         found->second, **function, *chip)));
  fmt::print("{}", *text);
  return Status::success();
}
