#include "compiler/target/cuda/sass/Parameters.h"

namespace tessera::sass {
namespace {

constexpr std::uint64_t kTable = std::uint64_t(0x60) << 40;
constexpr std::uint64_t kMaps = std::uint64_t(0x61) << 40;

std::uint64_t addressOf(const artifact::Arg &arg) {
  return ((std::uint64_t(arg.space()) + 1) << 40) + arg.offset();
}

/// Adds an instance's words.
void append(std::vector<std::uint64_t> &to, const artifact::Kernel &kernel,
            const artifact::Instance &instance, std::uint64_t firstBlock) {
  for (const artifact::Arg *arg : *instance.args())
    to.push_back(addressOf(*arg));
  if (kernel.gpu()->maps())
    for (std::uint32_t i = 0; i < kernel.gpu()->maps()->size(); ++i)
      to.push_back(kMaps + 128 * std::uint64_t(i));
  if (instance.sizes())
    for (std::int64_t size : *instance.sizes())
      to.push_back(static_cast<std::uint64_t>(size));
  to.push_back(firstBlock);
}

} // namespace

Parameters parametersOf(const artifact::Kernel &kernel,
                        const artifact::Launch &launch,
                        std::uint64_t ofVariant) {
  Parameters result;
  std::vector<std::uint64_t> others;
  std::uint64_t blocks = 0;
  for (const artifact::Instance *instance : *launch.instances()) {
    append(result.words.empty() ? result.words : others, kernel, *instance,
           blocks);
    blocks += instance->blocks();
  }
  result.words.push_back(kTable);
  result.words.push_back(launch.instances()->size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    result.memory[kTable + 8 * i] = static_cast<std::uint32_t>(others[i]);
    result.memory[kTable + 8 * i + 4] =
        static_cast<std::uint32_t>(others[i] >> 32);
  }
  result.blocks = static_cast<std::uint32_t>(ofVariant ? ofVariant : blocks);
  return result;
}

std::uint32_t parameterOffset(std::string_view target) {
  return target.starts_with("cuda:sm_9") ? 0x210 : 0x160;
}

} // namespace tessera::sass
