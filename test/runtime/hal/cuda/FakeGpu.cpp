#include "test/runtime/hal/cuda/FakeGpu.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include <fmt/format.h>

namespace tessera::test {

static constexpr std::size_t kPage = 4096;

static std::size_t mappedBytes(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage + kPage; // and a page between
}

static void *pointerTo(Address address) {
  return reinterpret_cast<void *>(static_cast<std::uintptr_t>(address));
}

Address Memory::allocate(std::size_t bytes) {
  void *memory = ::mmap(nullptr, mappedBytes(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return 0;
  std::memset(memory, 0xa5, bytes); // whatever was there before
  ::mprotect(memory, mappedBytes(bytes), PROT_NONE);
  const Address address = reinterpret_cast<std::uintptr_t>(memory);
  blocks[address] = bytes;
  return address;
}

bool Memory::release(Address address) {
  const auto found = blocks.find(address);
  if (found == blocks.end())
    return false;
  ::munmap(pointerTo(address), mappedBytes(found->second));
  blocks.erase(found);
  return true;
}

bool Memory::holds(Address address, std::size_t bytes) const {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin())
    return false;
  const auto &[start, size] = *--after;
  return address - start <= size && bytes <= size - (address - start);
}

std::size_t Memory::used() const {
  std::size_t sum = 0;
  for (const auto &[start, size] : blocks)
    sum += size;
  return sum;
}

std::vector<emulated::BufferRange> Memory::ranges() const {
  std::vector<emulated::BufferRange> list;
  for (const auto &[start, size] : blocks)
    list.push_back({static_cast<const std::byte *>(pointerTo(start)), size,
                    device::Access::readWrite});
  return list;
}

void Memory::protect(bool accessible) const {
  for (const auto &[start, size] : blocks)
    ::mprotect(pointerTo(start), mappedBytes(size) - kPage,
               accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

std::uint64_t setting(const char *variable, std::uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::vector<Context> &currentContexts() {
  static thread_local std::vector<Context> stack;
  return stack;
}

FakeGpus &FakeGpus::get() {
  static auto *all = new FakeGpus;
  return *all;
}

/// The result that TESSERA_FAKE_CUDA_FAIL = FUNCTION:CALL:RESULT asks for in
/// this call, counted from 1.
static Result injected(const char *function, unsigned call) {
  const char *wanted = std::getenv("TESSERA_FAKE_CUDA_FAIL");
  const std::string prefix = fmt::format("{}:{}:", function, call);
  if (!wanted || std::strncmp(wanted, prefix.c_str(), prefix.size()) != 0)
    return kSuccess;
  return std::atoi(wanted + prefix.size());
}

Result FakeGpus::enter(const char *function, unsigned needs) {
  const Result failure = injected(function, ++calls[function]);
  if (failure == kIllegalAddress || failure == kLaunchFailed)
    sticky = failure;
  if (failure != kSuccess && !(needs & kFree))
    return failure;
  if (needs & ~kNothing && !initialized)
    return wrong(fmt::format("{} before cuInit", function), kNotInitialized);
  if (needs & (kContext | kFree) && currentContexts().empty())
    return wrong(fmt::format("{} without a current context", function),
                 kInvalidContext);
  if (needs & kContext && sticky != kSuccess)
    return sticky;
  if (needs & kNoCapture)
    for (Stream stream : streams)
      if (stream->capturing && stream->capturer == std::this_thread::get_id()) {
        stream->broken = true;
        return wrong(fmt::format("{} while this thread captures", function),
                     kCaptureUnsupported);
      }
  return kSuccess;
}

Result FakeGpus::wrong(std::string_view what, Result result) {
  misuse.append(what).append("\n");
  return result;
}

Result FakeGpus::submit(Stream stream, Operation operation, int type) {
  if (stream->joined)
    stream->unjoined = true;
  if (Stream capture = stream->capture())
    capture->captured.push_back(new GraphNodeTag{std::move(operation), type});
  else
    stream->queue.push_back(std::move(operation));
  return kSuccess;
}

Result FakeGpus::work(Stream stream, const std::function<bool()> &until,
                      bool waits) {
  memory.protect(true);
  while (sticky == kSuccess && !until() && !stream->queue.empty()) {
    const Result result = stream->queue.front()();
    if (result == kNotReady) {
      if (!waits)
        break;
      memory.protect(false);
      mutex.unlock(); // taken once, by FAKE_ENTER
      std::this_thread::yield();
      mutex.lock();
      memory.protect(true);
      continue;
    }
    sticky = result;
    stream->queue.pop_front();
  }
  if (sticky != kSuccess)
    stream->queue.clear();
  memory.protect(false);
  return sticky;
}

void FakeGpus::finish() {
  for (Stream stream : streams)
    (void)work(stream, [] { return false; }, /*waits=*/false);
}

bool FakeGpus::holdsPinned(const void *address, std::size_t bytes) const {
  const auto *at = static_cast<const std::byte *>(address);
  return std::any_of(pinned.begin(), pinned.end(), [&](const auto &block) {
    return at >= block.first && at + bytes <= block.first + block.second;
  });
}

Result FakeGpus::runKernel(Kernel kernel, unsigned grid, unsigned threads,
                           unsigned sharedBytes,
                           const std::vector<std::uint64_t> &arguments) {
  if (!kernels.contains(kernel))
    return wrong("a kernel runs whose module was unloaded", kLaunchFailed);
  emulated::LaunchOptions options;
  options.kernel = kernel->name;
  options.grid = {grid, 1, 1};
  options.threads = threads;
  options.sharedBytes = sharedBytes;
  options.seed = ++launches;
  microseconds += setting("TESSERA_FAKE_CUDA_MICROSECONDS", 0) +
                  grid * setting("TESSERA_FAKE_CUDA_BLOCK_MICROSECONDS", 0);
  const Status status =
      machine.launch(options, kernel->entry, arguments.data(), memory.ranges());
  return status.ok() ? kSuccess : kIllegalAddress;
}

Result FakeGpus::countIteration(const std::vector<std::uint64_t> &arguments) {
  const auto [condition, count, iteration, trip, first] = std::array{
      arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]};
  if (!conditions.contains(condition) || !memory.holds(count, 4) ||
      !memory.holds(iteration, 8))
    return wrong("a count of iterations without its memory", kIllegalAddress);
  auto &next = *static_cast<std::uint64_t *>(pointerTo(iteration));
  next = first != 0 ? 0 : next + 1;
  const auto limit = *static_cast<const std::int32_t *>(pointerTo(count));
  conditions[condition] =
      next < trip && static_cast<std::int64_t>(next) < limit;
  return kSuccess;
}

std::chrono::steady_clock::time_point FakeGpus::now() const {
  if (!std::getenv("TESSERA_FAKE_CUDA_MICROSECONDS"))
    return std::chrono::steady_clock::now();
  return std::chrono::steady_clock::time_point(
      std::chrono::microseconds(microseconds));
}

std::string FakeGpus::leaks() const {
  std::string text;
  const auto count = [&](std::size_t number, std::string_view what) {
    if (number)
      text += fmt::format("{} {}\n", number, what);
  };
  count(memory.count(), "allocations");
  count(pinned.size(), "pinned allocations");
  count(modules.size(), "modules");
  count(streams.size(), "streams");
  count(events.size(), "events");
  count(graphs.size(), "graphs");
  count(bodies.size(), "bodies of loops");
  count(runs.size(), "graphs to run");
  count(ltHandles.size(), "handles of cuBLASLt");
  count(ltOperations.size(), "products");
  count(ltLayouts.size(), "layouts of matrices");
  count(ltPreferences.size(), "preferences of cuBLASLt");
  count(contexts.size(), "contexts");
  count(currentContexts().size(), "contexts current on this thread");
  return text;
}

void FakeGpus::reset() {
  sticky = kSuccess;
  calls.clear();
  misuse.clear();
}

} // namespace tessera::test
