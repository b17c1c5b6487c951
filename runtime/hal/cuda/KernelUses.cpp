#include "runtime/hal/cuda/KernelUses.h"

#include "runtime/artifact/ElementTypes.h"

#include <numeric>

namespace tessera::hal::cuda {
namespace {

/// A place for the three spaces to compute alignments with.
std::byte *const kNowhere = // NOLINTNEXTLINE(performance-no-int-to-ptr)
    reinterpret_cast<std::byte *>(std::uintptr_t(1) << 32);

/// `alignment` and whatever else an address moves by.
void align(std::uint32_t &alignment, std::uint64_t bytes) {
  alignment =
      static_cast<std::uint32_t>(std::gcd(std::uint64_t(alignment), bytes));
}

class Finder {
public:
  explicit Finder(const Commands &program) : program(program) {
    for (const Advance &advance : program.advances)
      moves[advance.pointer] = std::gcd(moves[advance.pointer], advance.stride);
  }
  void addTo(std::map<std::uint32_t, KernelUse> &uses) {
    for (const LaunchCommand &launch : program.launches)
      if (launch.kernel->gemm() || hasVariants(*launch.kernel))
        add(launch, uses[launch.kernelIndex]);
  }

private:
  void add(const LaunchCommand &launch, KernelUse &use);
  void addAlignment(std::uint32_t &alignment, const LaunchInstance &instance,
                    const artifact::Kernel &kernel,
                    const artifact::GemmOperand &operand);

  const Commands &program;
  std::map<std::uint32_t, std::uint64_t> moves; // by pointer
};

void Finder::add(const LaunchCommand &launch, KernelUse &use) {
  for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i) {
    const LaunchInstance &instance = use.instance = program.instances[i];
    use.launch = {launch.kernel, launch.kernelIndex, 0, 1,
                  instance.endBlock - instance.firstBlock};
    const artifact::Gemm *gemm = launch.kernel->gemm();
    if (!gemm)
      continue;
    addAlignment(use.alignment.lhs, instance, *launch.kernel, *gemm->lhs());
    addAlignment(use.alignment.rhs, instance, *launch.kernel, *gemm->rhs());
    addAlignment(use.alignment.result, instance, *launch.kernel,
                 *gemm->result());
  }
}

void Finder::addAlignment(std::uint32_t &alignment,
                          const LaunchInstance &instance,
                          const artifact::Kernel &kernel,
                          const artifact::GemmOperand &operand) {
  const std::uint32_t pointer = instance.firstPointer + operand.buffer();
  const std::uint64_t size =
      artifact::elementBytes(kernel.element_types()->Get(operand.buffer()));
  align(alignment, reinterpret_cast<std::uintptr_t>(program.pointers[pointer]));
  align(alignment, operand.offset() * size);
  if (const auto move = moves.find(pointer); move != moves.end())
    align(alignment, move->second);
  if (kernel.gemm()->batches() > 1)
    align(alignment, operand.batch() * size);
}

} // namespace

bool hasVariants(const artifact::Kernel &kernel) {
  return kernel.variants() && kernel.variants()->size() != 0 &&
         kernel.element_types();
}

std::map<std::uint32_t, KernelUse> findUses(const artifact::DeviceCode &code) {
  std::map<std::uint32_t, KernelUse> uses;
  for (const artifact::Program *program : *code.programs())
    Finder(flatten(code, *program, {kNowhere, kNowhere, kNowhere})).addTo(uses);
  return uses;
}

void useVariants(Commands &program, const artifact::DeviceCode &code,
                 std::span<const LoadedKernel> kernels) {
  for (const Command &command : program.commands) {
    if (command.kind != Command::Kind::launch)
      continue;
    LaunchCommand &launch = program.launches[command.index];
    const artifact::Variant *variant = kernels[launch.kernelIndex].variant;
    if (!variant)
      continue;
    launch.kernelIndex = variant->kernel();
    launch.kernel = code.kernels()->Get(launch.kernelIndex);
    launch.blocks = static_cast<std::uint32_t>(variant->blocks());
    // The only one: validateProgram has seen to that.
    program.instances[launch.firstInstance].endBlock = launch.blocks;
    program.steps[command.step].what = artifact::toView(launch.kernel->name());
  }
}

} // namespace tessera::hal::cuda
