#include "runtime/artifact/KernelTable.h"

#include "runtime/artifact/ElementTypes.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace tessera::artifact {
namespace {

using Nodes = flatbuffers::Vector<flatbuffers::Offset<Node>>;

/// Adds up the launches of a program.
class LaunchCounter {
public:
  explicit LaunchCounter(const DeviceCode &code) : code(code) {}
  void nodes(const Nodes &nodes, std::uint64_t times);
  std::vector<KernelRow> rows;

private:
  void add(const Launch &launch, std::uint64_t times);

  const DeviceCode &code;
  std::map<std::uint32_t, std::size_t> rowOf; // by kernel
};

void LaunchCounter::nodes(const Nodes &nodes, std::uint64_t times) {
  for (const Node *node : nodes) {
    if (const Loop *loop = node->step_as_Loop())
      this->nodes(*loop->body(), loop->count() ? 0 : times * loop->trip());
    else if (const Launch *launch = node->step_as_Launch())
      add(*launch, times);
  }
}

void LaunchCounter::add(const Launch &launch, std::uint64_t times) {
  const Kernel *kernel = code.kernels()->Get(launch.kernel());
  const auto [entry, isNew] = rowOf.try_emplace(launch.kernel(), rows.size());
  if (isNew)
    rows.push_back({kernel, launch.kernel()});
  KernelRow &row = rows[entry->second];
  const auto count = static_cast<double>(times);
  row.launches += times;
  row.flops +=
      count * static_cast<double>(kernel->flops() * launch.instances()->size());
  row.bytes += count * static_cast<double>(launchBytes(launch, *kernel));
}

/// "1.2 G"; "-" where it is unknown.
std::string shortly(double value) {
  if (value == 0)
    return "-";
  const char *unit = " kMGTP";
  while (value >= 1000 && unit[1]) {
    value /= 1000;
    ++unit;
  }
  return *unit == ' ' ? fmt::format("{:.0f}", value)
                      : fmt::format("{:.3g} {}", value, *unit);
}

/// Of the row's kernel, or of `kernel`, a variant of it.
std::string measurements(const KernelRow &row, const Kernel &kernel) {
  std::string text =
      fmt::format("{:>5} {:>7} {:>7}",
                  row.kernel == &kernel ? fmt::to_string(row.launches) : "or",
                  shortly(row.flops), shortly(row.bytes));
  const GpuKernel *gpu = kernel.gpu();
  if (!gpu)
    return text;
  // Without a cubin the number of registers is unknown.
  const auto compiled = [&](std::uint32_t value) {
    return gpu->registers() ? fmt::to_string(value) : std::string("-");
  };
  return text + fmt::format(" {:>8} {:>7} {:>4} {:>6} {:>5} {:>5}",
                            row.boundMicroseconds
                                ? fmt::format("{:.2f}", row.boundMicroseconds)
                                : "-",
                            gpu->threads(), compiled(gpu->registers()),
                            gpu->shared_bytes() + gpu->static_shared_bytes(),
                            compiled(gpu->spill_bytes()),
                            compiled(gpu->hmma() + gpu->hgmma()));
}

std::string heading(const hardware::Chip *chip, const std::string &more) {
  return fmt::format("{:>5} {:>7} {:>7}{}{}  {}\n", "runs", "FLOPs", "bytes",
                     chip ? fmt::format(" {:>8} {:>7} {:>4} {:>6} {:>5} {:>5}",
                                        fmt::format("{} us", chip->name),
                                        "threads", "regs", "shared", "spill",
                                        "mma")
                          : "",
                     more, "kernel: what was fused");
}

} // namespace

const hardware::Chip *boundingChip(const DeviceCode &code) {
  return hardware::chipOfTarget(toView(code.device()));
}

Arithmetic arithmeticOf(const Kernel &kernel) {
  if (!kernel.gpu() || kernel.gpu()->hmma() + kernel.gpu()->hgmma() == 0)
    return Arithmetic::fp32;
  if (const auto *types = kernel.element_types())
    for (const ElementType type : *types)
      if (type == ElementType::bf16 || type == ElementType::f16)
        return Arithmetic::bf16;
  return Arithmetic::tf32;
}

double peakOf(const hardware::Peaks &peaks, const Kernel &kernel) {
  switch (arithmeticOf(kernel)) {
  case Arithmetic::bf16:
    return peaks.bf16;
  case Arithmetic::tf32:
    return peaks.tf32;
  case Arithmetic::fp32:
    break;
  }
  return peaks.fp32;
}

std::uint64_t launchBytes(const Launch &launch, const Kernel &kernel) {
  if (kernel.bytes())
    return kernel.bytes() * launch.instances()->size();
  std::uint64_t bytes = 0;
  // Unknown, and not only for want of sizes: tables that it takes rows of.
  if (kernel.dynamic_sizes() == 0)
    return 0;
  for (const Instance *instance : *launch.instances())
    for (flatbuffers::uoffset_t i = 0; i < instance->args()->size(); ++i)
      bytes += instance->args()->Get(i)->bytes() *
               (kernel.access()->Get(i) == Access::read_write ? 2 : 1);
  return bytes;
}

std::vector<KernelRow> kernelRows(const DeviceCode &code,
                                  const Program &program) {
  LaunchCounter counter(code);
  counter.nodes(*program.steps(), 1);
  const hardware::Chip *chip = boundingChip(code);
  for (KernelRow &row : counter.rows) {
    const auto launches = static_cast<double>(row.launches);
    row.flops /= launches;
    row.bytes /= launches;
    if (chip)
      row.boundMicroseconds =
          1e6 * std::max(row.bytes / chip->sm->memoryBandwidth,
                         row.flops / peakOf(chip->peaks, *row.kernel));
  }
  return std::move(counter.rows);
}

std::string kernelTable(const DeviceCode &code, const Program &program,
                        const MoreColumns &more) {
  const std::vector<KernelRow> rows = kernelRows(code, program);
  std::uint64_t launches = 0;
  double flops = 0, bytes = 0, bound = 0;
  std::string lines;
  for (const KernelRow &row : rows) {
    const auto count = static_cast<double>(row.launches);
    launches += row.launches;
    flops += count * row.flops;
    bytes += count * row.bytes;
    bound += count * row.boundMicroseconds;
    const auto line = [&](std::uint32_t number, std::string_view what) {
      const Kernel &kernel = *code.kernels()->Get(number);
      lines += fmt::format("{}{}  {}: {}\n", measurements(row, kernel),
                           number < more.cells.size() ? more.cells[number] : "",
                           toView(kernel.name()), what);
    };
    line(row.number, toView(row.kernel->summary()));
    if (row.kernel->variants())
      for (const Variant *variant : *row.kernel->variants())
        line(variant->kernel(), "a variant of it");
  }
  const bool isGpu = !rows.empty() && rows.front().kernel->gpu();
  const hardware::Chip *chip = isGpu ? boundingChip(code) : nullptr;
  return fmt::format(
      "{} on {}: {} launches of {} kernels{}{}{}\n{}{}", toView(program.name()),
      toView(code.device()), launches, rows.size(),
      flops ? fmt::format(", {}FLOP", shortly(flops)) : "",
      bytes ? fmt::format(", {}B", shortly(bytes)) : "",
      chip ? fmt::format("; at best {:.0f} us on an {}", bound, chip->name)
           : "",
      heading(chip, more.heading), lines);
}

const Kernel *findKernel(const DeviceCode &code, std::string_view name) {
  for (const Kernel *kernel : *code.kernels())
    if (toView(kernel->name()) == name)
      return kernel;
  return nullptr;
}

} // namespace tessera::artifact
