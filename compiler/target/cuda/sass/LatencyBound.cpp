#include "compiler/target/cuda/sass/LatencyBound.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/target/cuda/sass/Parameters.h"
#include "runtime/artifact/KernelTable.h"

namespace tessera::sass {
namespace {

using hardware::Multiprocessors;

constexpr std::int64_t kWarp = 32;
constexpr double kSchedulers = 4; // of an SM, an instruction a cycle each
constexpr double kFunctionCycles =
    2; // of a warp's MUFU: 16 lanes a cycle and SM
constexpr double kLine = 128;
constexpr double kWarpsOfGroup = 4; // which issue one wgmma together

/// What one block does, all its warps together.
struct BlockTrace {
  double cycles = 0; ///< of the slowest warp
  double instructions = 0, functions = 0;
  double tensorCycles = 0; ///< of the SM's tensor cores
  double byteCycles = 0, missBytes = 0, bulkBytes = 0;
  double waits = 0;
  WarpTrace slowest;
};

/// Whether warps do different work.
bool hasRoles(const Function &function) {
  return std::any_of(
      function.instructions.begin(), function.instructions.end(),
      [](const Instruction &one) { return one.base() == "SYNCS"; });
}

class Bounder {
public:
  Bounder(const artifact::Kernel &kernel, const artifact::Launch &launch,
          std::uint64_t blocks, const Function &function,
          const hardware::Chip &chip)
      : kernel(kernel), chip(chip), sm(*chip.sm), code(decode(function)),
        parameters(parametersOf(kernel, launch, blocks)),
        uniqueBytes(double(artifact::launchBytes(launch, kernel))),
        flops(double(kernel.flops()) * double(launch.instances()->size())),
        isSplit(hasRoles(function)) {}
  KernelBound run();

private:
  void setLatencies();
  double memoryShare(const BlockTrace &first) const;
  BlockTrace follow(std::uint32_t block);
  void add(BlockTrace &to, const WarpTrace &one, double warps) const;
  void finish(const std::vector<BlockTrace> &blocks);
  double peak() const; ///< FLOP/s

  const artifact::Kernel &kernel;
  const hardware::Chip &chip;
  const Multiprocessors &sm;
  const std::vector<Decoded> code;
  const Parameters parameters;
  const double uniqueBytes, flops;
  const bool isSplit;
  Latencies latencies;
  KernelBound result;
};

void Bounder::setLatencies() {
  const artifact::GpuKernel &gpu = *kernel.gpu();
  const double warps = double(result.concurrent) * gpu.threads() / kWarp;
  const double shared = double(result.concurrent) *
                        (gpu.shared_bytes() + gpu.static_shared_bytes());
  latencies.l1 = sm.l1Latency;
  latencies.global = sm.l2Latency;
  latencies.linesOfL1 =
      std::size_t(std::clamp((sm.l1Bytes - shared) / kLine / warps, 4.0, 64.0));
}

// Which part of the loads that miss L1 reaches memory. What fits in the L2
// cache may be there from the kernels before.
double Bounder::memoryShare(const BlockTrace &first) const {
  if (uniqueBytes <= sm.l2Bytes)
    return 0;
  const double loaded =
      (first.missBytes + first.bulkBytes) * double(result.blocks);
  return loaded > 0 ? std::min(1.0, uniqueBytes / loaded) : 0;
}

void Bounder::add(BlockTrace &to, const WarpTrace &one, double warps) const {
  const double lanes = isSplit ? 1 : kWarp;
  to.instructions += warps * double(one.instructions);
  to.functions += warps * double(one.multifunction);
  to.tensorCycles += warps / kWarpsOfGroup * one.tensorCycles;
  to.byteCycles += warps * kWarp * one.byteCycles;
  to.missBytes += warps * kWarp * double(one.missBytes);
  to.bulkBytes += double(one.bulkBytes) * lanes;
  if (one.cycles < to.cycles)
    return;
  to.cycles = one.cycles;
  to.waits = double(one.waits);
  to.slowest = one;
}

BlockTrace Bounder::follow(std::uint32_t block) {
  BlockTrace result;
  const std::uint32_t threads = kernel.gpu()->threads();
  Surroundings around{.threads = threads,
                      .blocks = parameters.blocks,
                      .thread = 0,
                      .block = block,
                      .parameters = parameterOffset(sm.target),
                      .arguments = parameters.words,
                      .memory = &parameters.memory};
  // Warps without roles do the same on other data.
  const double warps = isSplit ? 1 : double(threads) / kWarp;
  for (;
       around.thread < (isSplit ? threads : 1) && this->result.unknown.empty();
       around.thread += kWarp) {
    WarpTrace one = trace(code, around, latencies);
    if (!one.unknown.empty() && this->result.unknown.empty())
      this->result.unknown = one.unknown;
    this->result.isAssumed |= one.assumed > 0;
    add(result, one, warps);
  }
  if (result.bulkBytes > 0) {
    // The ring is full at best: Little's law. And its first stage is waited
    // for.
    const double ring = std::max<double>(kernel.gpu()->shared_bytes(), 1);
    const double rounds = result.bulkBytes / ring;
    result.waits = std::max(result.waits + 1, std::ceil(rounds));
    result.byteCycles += result.bulkBytes * latencies.global;
    result.cycles =
        std::max(result.cycles + latencies.global, rounds * latencies.global);
  }
  return result;
}

/// The mean of the blocks that were followed, and the extremes of their times.
struct Mean : BlockTrace {
  double least = 0, most = 0, mostTensor = 0;
  explicit Mean(const std::vector<BlockTrace> &blocks)
      : least(blocks[0].cycles), most(blocks[0].cycles) {
    const double part = 1.0 / double(blocks.size());
    for (const BlockTrace &one : blocks) {
      cycles += part * one.cycles;
      least = std::min(least, one.cycles);
      most = std::max(most, one.cycles);
      instructions += part * one.instructions;
      functions += part * one.functions;
      tensorCycles += part * one.tensorCycles;
      mostTensor = std::max(mostTensor, one.tensorCycles);
      byteCycles += part * one.byteCycles;
      waits = std::max(waits, one.waits);
    }
  }
};

void Bounder::finish(const std::vector<BlockTrace> &blocks) {
  const Mean mean(blocks);
  const double count = double(result.blocks), cycle = 1 / sm.clock;
  // Equal blocks come in whole waves; others fill the gaps.
  const bool isEven = mean.least > 0.9 * mean.most;
  const auto shares = [&](double slots) {
    return isEven ? std::ceil(count / slots) : count / slots;
  };
  const double slots = double(result.concurrent * sm.count),
               ofBusiest = shares(double(sm.count));
  const double bytes = uniqueBytes / sm.memoryBandwidth,
               arithmetic = flops / peak();
  const double waiting =
      cycle * std::max(mean.most, mean.cycles * shares(slots));
  const double tail = std::max(
      arithmetic * ofBusiest * double(sm.count) / count,
      cycle * std::max(mean.mostTensor, ofBusiest * mean.tensorCycles));
  const double issue = cycle * ofBusiest * mean.instructions / kSchedulers;
  const double functions = cycle * ofBusiest * mean.functions * kFunctionCycles;
  result.roofline = std::max(bytes, arithmetic);
  result.latency = std::max({waiting, tail, issue, functions});
  result.waits = mean.waits;
  result.instructions = mean.instructions;
  result.bytesInFlight =
      mean.byteCycles / std::max(mean.cycles, 1.0) *
      std::min(double(result.concurrent), std::ceil(count / double(sm.count)));
  // The first of equal ones.
  double largest = -1;
  for (const auto &[seconds, limit] :
       {std::pair(bytes, Limit::bandwidth),
        {arithmetic, Limit::arithmetic},
        {tail, Limit::tail},
        {waiting, count > slots ? Limit::inFlight : Limit::chain},
        {issue, Limit::issue},
        {functions, Limit::functions}})
    if (seconds > largest * 1.0001) {
      largest = seconds;
      result.limit = limit;
    }
}

double Bounder::peak() const { return artifact::peakOf(chip.peaks, kernel); }

KernelBound Bounder::run() {
  result.blocks = parameters.blocks;
  result.concurrent = concurrentBlocks(*kernel.gpu(), sm);
  if (result.blocks == 0 || result.concurrent == 0) {
    result.unknown = "the launch has no blocks";
    return std::move(result);
  }
  setLatencies();
  BlockTrace first = follow(0);
  if (const double share = memoryShare(first); share > 0) {
    latencies.global += share * (sm.memoryLatency - sm.l2Latency);
    first = follow(0);
  }
  std::vector<BlockTrace> traces{std::move(first)};
  const std::uint32_t last = parameters.blocks - 1;
  std::set<std::uint32_t> samples;
  for (std::uint32_t quarter = 1; quarter <= 4; ++quarter)
    samples.insert(std::uint32_t(std::uint64_t(last) * quarter / 4));
  samples.erase(0);
  for (std::uint32_t block : samples)
    if (result.unknown.empty())
      traces.push_back(follow(block));
  result.slowest = traces.front().slowest;
  finish(traces);
  if (!result.unknown.empty())
    result.latency = 0;
  return std::move(result);
}

} // namespace

std::string_view nameOf(Limit limit) {
  switch (limit) {
  case Limit::bandwidth:
    return "bandwidth";
  case Limit::arithmetic:
    return "FLOPs";
  case Limit::chain:
    return "chain";
  case Limit::inFlight:
    return "in flight";
  case Limit::issue:
    return "issue";
  case Limit::functions:
    return "MUFU";
  case Limit::tail:
    return "tail";
  }
  return "";
}

std::int64_t concurrentBlocks(const artifact::GpuKernel &kernel,
                              const Multiprocessors &sm) {
  constexpr std::int64_t kUnit = 256; // registers are given to warps in these
  constexpr std::int64_t kReserved = 1024; // bytes of a block, by the driver
  const std::int64_t warps = (kernel.threads() + kWarp - 1) / kWarp;
  const std::int64_t ofWarp =
      (std::max<std::int64_t>(kernel.registers(), 1) * kWarp + kUnit - 1) /
      kUnit * kUnit;
  const std::int64_t shared =
      kernel.shared_bytes() + kernel.static_shared_bytes() + kReserved;
  return std::min({sm.blocks, sm.threads / (warps * kWarp),
                   sm.registers / (ofWarp * warps), sm.sharedBytes / shared});
}

std::uint64_t countGeneric(const Function &function) {
  return static_cast<std::uint64_t>(
      std::count_if(function.instructions.begin(), function.instructions.end(),
                    [](const Instruction &one) {
                      return one.base() == "LD" || one.base() == "ST";
                    }));
}

KernelBound boundOf(const artifact::Kernel &kernel,
                    const artifact::Launch &launch, std::uint64_t blocks,
                    const Function &function, const hardware::Chip &chip) {
  return Bounder(kernel, launch, blocks, function, chip).run();
}

} // namespace tessera::sass
