// Proves that nothing allocates after start: every allocation of the process
// passes through here, on every thread, and is counted while armed. A binary of
// its own, because it replaces malloc.
#include "test/runtime/hal/Conformance.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <malloc.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TESSERA_SANITIZED 1
#endif
#endif

namespace {
std::atomic<bool> armed{false};
std::atomic<int> allocations{0};
[[maybe_unused]] void count() {
  if (armed.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
}
} // namespace

#ifndef TESSERA_SANITIZED
extern "C" {
// glibc's own, under the names that replacing malloc leaves reachable.
void *__libc_malloc(std::size_t size);
void *__libc_calloc(std::size_t count, std::size_t size);
void *__libc_realloc(void *pointer, std::size_t size);
void *__libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void *pointer);

void *malloc(std::size_t size) noexcept {
  count();
  return __libc_malloc(size);
}
void *calloc(std::size_t number, std::size_t size) noexcept {
  count();
  return __libc_calloc(number, size);
}
void *realloc(void *pointer, std::size_t size) noexcept {
  count();
  return __libc_realloc(pointer, size);
}
void *memalign(std::size_t alignment, std::size_t size) noexcept {
  count();
  return __libc_memalign(alignment, size);
}
void *aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **pointer, std::size_t alignment,
                   std::size_t size) noexcept {
  count();
  *pointer = __libc_memalign(alignment, size);
  return *pointer ? 0 : ENOMEM;
}
void free(void *pointer) noexcept { __libc_free(pointer); }
}
#endif

using namespace tessera;
using namespace tessera::test;

namespace {

/// Allocations while `body` runs.
template <typename Body> int allocationsIn(Body body) {
  allocations = 0;
  armed = true;
  body();
  armed = false;
  return allocations;
}

/// Loops, several instances, copies, fills, scratch: every kind of command.
ArtifactT everything() {
  constexpr std::int64_t n = 20'000;
  constexpr std::uint64_t bytes = 4 * n, slot = (bytes + 63) / 64 * 64;
  const auto run = [&](TestKernel kernel, std::vector<ArgT> args) {
    return launch(kernel, {instance(std::move(args), blocksOf(n), {n})});
  };
  ArtifactT artifact = oneProgram(
      program(
          "main", 2 * slot, 4 * slot,
          {tensor("x", ElementType::f32, {2, n}, Role::input, Space::io, 0)},
          {tensor("y", ElementType::f32, {n}, Role::output, Space::io,
                  2 * slot),
           tensor("loss", ElementType::f32, {}, Role::metric, Space::io,
                  3 * slot)},
          {fill(arg(Space::arena, 0, 2 * slot), 0),
           loop(2, {run(kAccumulate, {arg(Space::io, 0, bytes, {bytes}),
                                      arg(Space::arena, 0, bytes, {0})})}),
           launch(kScale, {instance({arg(Space::arena, 0, bytes),
                                     arg(Space::arena, slot, bytes)},
                                    blocksOf(n), {n}),
                           instance({arg(Space::state, 0, bytes),
                                     arg(Space::state, 0, bytes)},
                                    blocksOf(n), {n})}),
           run(kReverseBlocks,
               {arg(Space::arena, slot, bytes), arg(Space::arena, 0, bytes)}),
           copy(arg(Space::arena, 0, bytes), arg(Space::io, 2 * slot, bytes)),
           launch(kTotal, {instance({arg(Space::arena, 0, bytes),
                                     arg(Space::io, 3 * slot, 4)},
                                    1, {n})})}),
      slot);
  share(artifact).state = owned<TensorT>(
      {tensor("w", ElementType::f32, {n}, Role::parameter, Space::state, 0)});
  return artifact;
}

class NoAllocation : public testing::TestWithParam<bool> {};

} // namespace

TEST(Counter, CountsWhatItShould) {
#ifdef TESSERA_SANITIZED
  GTEST_SKIP() << "the sanitizer owns malloc";
#endif
  // Volatile, so that no allocation is optimized away.
  EXPECT_EQ(allocationsIn([] {
              void *volatile a = std::malloc(10);
              int *volatile b = new int(3);
              std::free(a);
              delete b;
            }),
            2);
}

TEST_P(NoAllocation, AfterTheSessionIsOpen) {
#ifdef TESSERA_SANITIZED
  GTEST_SKIP() << "the sanitizer owns malloc";
#endif
  const bool profiled = GetParam();
  const ArtifactT artifact = everything();
  for (const unsigned threads : {1, 2, 4}) {
    hal::SessionOptions options;
    options.deviceOptions.threads = threads;
    options.recordOptions.profile = profiled;
    options.recordOptions.traceEvents = profiled ? 16 : 0;
    Runner runner(artifact, options);
    ASSERT_TRUE(runner.ok()) << runner.message();
    hal::Session &session = runner.get();
    std::vector<float> x(40'000, 1.0f), y(20'000);
    float loss = 0;
    bool ok = true;
    const struct mallinfo2 before = ::mallinfo2();
    // The first run too: kernels and threads are ready when open() returns.
    EXPECT_EQ(
        allocationsIn([&] {
          for (int step = 0; step < 50; ++step) {
            ok &= session.writeInput<float>("main", "x", x).ok();
            ok &= session.run("main").ok();
            ok &= session
                      .readOutput("main", "y",
                                  std::as_writable_bytes(std::span(y)))
                      .ok();
            auto metric = session.readScalar<float>("main", "loss");
            ok &= metric.ok();
            loss = *metric;
            ok &= session.readState("w", std::as_writable_bytes(std::span(y)))
                      .ok();
          }
        }),
        0)
        << threads << " threads";
    const struct mallinfo2 after = ::mallinfo2();
    EXPECT_EQ(after.uordblks, before.uordblks);
    EXPECT_EQ(after.hblkhd, before.hblkhd);
    EXPECT_TRUE(ok);
    EXPECT_EQ(loss, 20'000 * 5.0f); // 2 (1 + 1) + 1 each
  }
}

INSTANTIATE_TEST_SUITE_P(Profile, NoAllocation, testing::Bool(),
                         [](const auto &info) {
                           return info.param ? "On" : "Off";
                         });
