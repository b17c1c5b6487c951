// What SASS says of a kernel, as lines for people.
#include <algorithm>

#include <fmt/format.h>

#include "compiler/target/cuda/sass/LatencyBound.h"

namespace tessera::sass {
namespace {

/// What the instructions of a loop are, those of inner loops included.
struct Mix {
  std::uint64_t loads = 0, widest = 0, generic = 0, shared = 0, stores = 0;
  std::uint64_t copies = 0, bulk = 0, branches = 0, barriers = 0, products = 0,
                functions = 0;
};

Mix mixOf(const std::vector<Decoded> &code, const Loop &loop) {
  Mix mix;
  for (std::size_t i = loop.first; i <= loop.last; ++i) {
    const Decoded &one = code[i];
    const bool isGlobal =
        one.space == Space::global || one.space == Space::generic;
    if (one.op == Op::load && isGlobal) {
      ++mix.loads;
      mix.widest = std::max<std::uint64_t>(mix.widest, one.bytes);
    }
    mix.generic += (one.op == Op::load || one.op == Op::store) &&
                   one.space == Space::generic;
    mix.shared += one.op == Op::load && one.space == Space::shared;
    mix.stores += one.op == Op::store && isGlobal;
    mix.copies += one.op == Op::copyAsync;
    mix.bulk += one.op == Op::bulkCopy;
    mix.branches += one.op == Op::branch;
    mix.barriers += one.op == Op::barrier;
    mix.products +=
        one.op == Op::multiplyTiles || one.op == Op::multiplyWarpgroups;
    mix.functions += one.op == Op::multifunction;
  }
  return mix;
}

} // namespace

std::string describe(const Function &function, const KernelBound &bound) {
  std::string text =
      bound.unknown.empty()
          ? fmt::format("// at least {:.2f} us ({}); roofline {:.2f} us\n",
                        1e6 * bound.latency, nameOf(bound.limit),
                        1e6 * bound.roofline)
          : fmt::format("// no bound: {}\n", bound.unknown);
  text += fmt::format("// {} blocks, {} of an SM at once; a block waits {:.0f} "
                      "times for memory and issues {:.0f} instructions; {:.1f} "
                      "KiB in flight in an SM\n",
                      bound.blocks, bound.concurrent, bound.waits,
                      bound.instructions, bound.bytesInFlight / 1024);
  const std::vector<Decoded> code = decode(function);
  for (const Loop &loop : bound.slowest.loops) {
    const Mix mix = mixOf(code, loop);
    text += fmt::format(
        "// loop {:04x}-{:04x}: {} iterations of {} instructions, {} waits, at "
        "most {} B of a thread in flight; {} loads of at most {} B, {} stores, "
        "{} generic, {} of shared memory, {} cp.async, {} bulk copies, {} "
        "branches, {} barriers, {} products, {} MUFU\n",
        code[loop.first].from->address, code[loop.last].from->address,
        loop.trips, loop.last - loop.first + 1, loop.waits, loop.inFlight,
        mix.loads, mix.widest, mix.stores, mix.generic, mix.shared, mix.copies,
        mix.bulk, mix.branches, mix.barriers, mix.products, mix.functions);
  }
  return text;
}

} // namespace tessera::sass
