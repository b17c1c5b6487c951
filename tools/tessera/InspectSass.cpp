#include "tools/tessera/InspectSass.h"
#include "compiler/target/cuda/sass/Disassembler.h"
#include "compiler/target/cuda/sass/LatencyBound.h"
#include "runtime/artifact/ElementTypes.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

using namespace tessera;
using artifact::toView;
using sass::KernelBound;

namespace {

/// The machine code of a device's kernels.
class MachineCode {
public:
  static StatusOr<MachineCode> open(const artifact::DeviceCode &code);
  /// The kernel's function; an error if no cubin holds it.
  StatusOr<const sass::Function *> find(std::uint32_t kernel);
  /// The text of a kernel's function.
  StatusOr<std::string> text(std::uint32_t kernel);

private:
  explicit MachineCode(const artifact::DeviceCode &code) : code(code) {}
  StatusOr<const artifact::CodeObject *> objectOf(std::uint32_t kernel) const;
  StatusOr<std::string> disassemble(const artifact::CodeObject &object) const;

  const artifact::DeviceCode &code;
  std::string disassembler;
  std::map<const artifact::CodeObject *, std::vector<sass::Function>> objects;
};

StatusOr<MachineCode> MachineCode::open(const artifact::DeviceCode &code) {
  MachineCode result(code);
  result.disassembler = sass::findDisassembler();
  if (result.disassembler.empty())
    return Status::error("{}", sass::kHowToGetDisassembler);
  return result;
}

StatusOr<const artifact::CodeObject *>
MachineCode::objectOf(std::uint32_t kernel) const {
  for (const artifact::CodeObject *object : *code.code())
    if (toView(object->target()) == toView(code.device()) &&
        (!object->kernels() ||
         std::find(object->kernels()->begin(), object->kernels()->end(),
                   kernel) != object->kernels()->end()))
      return object;
  return Status::error("the artifact has no cubin with kernel '{}' for {}; "
                       "compile it where nvcc is installed",
                       toView(code.kernels()->Get(kernel)->name()),
                       toView(code.device()));
}

StatusOr<std::string>
MachineCode::disassemble(const artifact::CodeObject &object) const {
  return sass::disassemble(
      disassembler, {reinterpret_cast<const char *>(object.elf()->data()),
                     object.elf()->size()});
}

StatusOr<const sass::Function *> MachineCode::find(std::uint32_t kernel) {
  auto object = objectOf(kernel);
  if (!object.ok())
    return object.status();
  auto known = objects.find(*object);
  if (known == objects.end()) {
    auto text = disassemble(**object);
    if (!text.ok())
      return text.status();
    auto functions = sass::parse(*text);
    if (!functions.ok())
      return functions.status();
    known = objects.emplace(*object, functions.take()).first;
  }
  const std::string_view name = toView(code.kernels()->Get(kernel)->name());
  for (const sass::Function &function : known->second)
    if (function.name == name)
      return &function;
  return Status::error("the cubin has no function of kernel '{}'", name);
}

StatusOr<std::string> MachineCode::text(std::uint32_t kernel) {
  auto object = objectOf(kernel);
  if (!object.ok())
    return object.status();
  auto all = disassemble(**object);
  if (!all.ok())
    return all;
  const std::string start =
      fmt::format(".section\t.text.tessera_{},",
                  toView(code.kernels()->Get(kernel)->name()));
  const std::size_t begin = all->find(start);
  if (begin == all->npos)
    return Status::error("the cubin has no function of kernel '{}'",
                         toView(code.kernels()->Get(kernel)->name()));
  return all->substr(begin, all->find("\n//---", begin) - begin);
}

/// A kernel as it is launched first.
struct FirstLaunch {
  const artifact::Launch *launch = nullptr;
  std::uint64_t blocks = 0; ///< of a variant; 0: the launch's
};

using Nodes = flatbuffers::Vector<flatbuffers::Offset<artifact::Node>>;

void findLaunches(const artifact::DeviceCode &code, const Nodes &nodes,
                  std::map<std::uint32_t, FirstLaunch> &to) {
  for (const artifact::Node *node : nodes) {
    if (const auto *loop = node->step_as_Loop())
      findLaunches(code, *loop->body(), to);
    const auto *launch = node->step_as_Launch();
    if (!launch)
      continue;
    to.try_emplace(launch->kernel(), FirstLaunch{launch, 0});
    if (const auto *variants =
            code.kernels()->Get(launch->kernel())->variants())
      for (const artifact::Variant *variant : *variants)
        to.try_emplace(variant->kernel(),
                       FirstLaunch{launch, variant->blocks()});
  }
}

std::string microseconds(double seconds) {
  return fmt::format("{:.2f}", 1e6 * seconds);
}

std::string cell(const KernelBound &bound, std::uint64_t generic) {
  const std::string loads = generic ? fmt::to_string(generic) : "-";
  if (!bound.unknown.empty())
    return fmt::format(" {:>8} {:>9} {:>6} {:>6} {:>4} {:<9}",
                       microseconds(bound.roofline), "?", "?", "?", loads, "?");
  return fmt::format(" {:>8} {:>9} {:>6.0f} {:>6.1f} {:>4} {:<9}",
                     microseconds(bound.roofline),
                     microseconds(bound.latency) + (bound.isGuessed ? "+" : ""),
                     bound.waits, bound.bytesInFlight / 1024, loads,
                     sass::nameOf(bound.limit));
}

} // namespace

StatusOr<artifact::MoreColumns>
tessera::latencyColumns(const artifact::DeviceCode &code,
                        const artifact::Program &program) {
  const hardware::Chip *chip = hardware::chipOfTarget(toView(code.device()));
  if (!chip)
    return Status::error("no latencies are known of a GPU that runs {}",
                         toView(code.device()));
  auto machine = MachineCode::open(code);
  if (!machine.ok())
    return machine.status();
  std::map<std::uint32_t, FirstLaunch> launches;
  findLaunches(code, *program.steps(), launches);
  artifact::MoreColumns columns;
  columns.heading =
      fmt::format(" {:>8} {:>9} {:>6} {:>6} {:>4} {:<9}", "roofline", "latency",
                  "waits", "KiB/SM", "LD", "binds");
  columns.cells.resize(code.kernels()->size());
  for (const auto &[number, first] : launches) {
    auto function = machine->find(number);
    if (!function.ok())
      return function.status();
    const artifact::Kernel &kernel = *code.kernels()->Get(number);
    columns.cells[number] = cell(
        sass::boundOf(kernel, *first.launch, first.blocks, **function, *chip),
        sass::countGeneric(**function));
  }
  return columns;
}

std::string tessera::latencyLegend(const artifact::DeviceCode &code) {
  const hardware::Chip *chip = hardware::chipOfTarget(toView(code.device()));
  return fmt::format(
      "roofline, latency: us of a launch on an {} at least; latency by SASS, "
      "of "
      "the first launch, with + where branches depend on data\nwaits: for "
      "memory, of a block, one after the other; KiB/SM: in flight on average; "
      "LD: generic loads and stores\n",
      chip ? chip->name : "unknown GPU");
}

Status tessera::showSass(const artifact::DeviceCode &code,
                         const artifact::Program &program,
                         const artifact::Kernel &kernel) {
  std::uint32_t number = 0;
  while (code.kernels()->Get(number) != &kernel)
    ++number;
  auto machine = MachineCode::open(code);
  if (!machine.ok())
    return machine.status();
  auto function = machine->find(number);
  if (!function.ok())
    return function.status();
  auto text = machine->text(number);
  if (!text.ok())
    return text.status();
  std::map<std::uint32_t, FirstLaunch> launches;
  findLaunches(code, *program.steps(), launches);
  const hardware::Chip *chip = hardware::chipOfTarget(toView(code.device()));
  if (auto first = launches.find(number); chip && first != launches.end()) {
    const KernelBound bound = sass::boundOf(
        kernel, *first->second.launch, first->second.blocks, **function, *chip);
    fmt::print("{}", sass::describe(**function, bound));
  }
  fmt::print("{}", *text);
  return Status::success();
}
