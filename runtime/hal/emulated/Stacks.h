// Stacks of the emulated GPU's threads, kept from one launch to the next.
#pragma once
#include "runtime/device/emulated/Machine.h"

#include <boost/context/stack_context.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace tessera::emulated {

class Stacks {
public:
  /// That of one thread, which no two fibers use at once.
  boost::context::stack_context of(unsigned thread) {
    const unsigned warp = thread / device::kWarp, lane = thread % device::kWarp;
    while (warps.size() <= warp)
      warps.push_back(
          std::make_unique_for_overwrite<std::byte[]>(device::kWarp * kApart));
    boost::context::stack_context stack;
    stack.size = kBytes;
    // Warps begin at pages, so each warp's first stack is moved on by its own
    // number of lines, too.
    stack.sp =
        warps[warp].get() + lane * kApart + kBytes + warp % kWarpLines * kLine;
    return stack;
  }

private:
  static constexpr std::size_t kLine = 64, kBytes = std::size_t(128) << 10;
  /// Tops of stacks that are a power of two apart share few sets of the
  /// caches, and each switch to another thread would miss them all.
  static constexpr std::size_t kWarpLines = 16, kLines = 2 * kWarpLines + 1;
  static constexpr std::size_t kApart = kBytes + kLines * kLine;
  std::vector<std::unique_ptr<std::byte[]>> warps;
};

/// For boost::context::fiber.
struct StackOfThread {
  Stacks *stacks;
  unsigned thread;
  boost::context::stack_context allocate() { return stacks->of(thread); }
  void deallocate(boost::context::stack_context &) noexcept {}
};

} // namespace tessera::emulated
