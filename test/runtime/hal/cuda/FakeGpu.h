// What the fake driver (FakeDriver.cpp) is made of: GPUs in the host's memory
// whose kernels run on the emulated GPU. Work is put off as long as a GPU may
// put it off, so that whoever forgets to wait reads old bytes, and memory of a
// GPU cannot be touched by the host.
#pragma once
#include "runtime/hal/cuda/LibraryApi.h"
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/host/LoadedCode.h"
#include "test/runtime/hal/cuda/FakeCubin.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// The driver's handles are pointers to these.
namespace tessera::hal::cuda {

struct ContextTag {
  int device;
  unsigned retains = 0;
};
struct ModuleTag {
  std::vector<std::shared_ptr<LoadedCode>> code; ///< for the emulated GPU
  std::optional<test::Cubin> cubin;              ///< if it was loaded from one
  bool countsIterations = false; ///< the runtime's own, for loops in graphs
};
struct KernelTag {
  Module module;
  std::string name; ///< without tessera_
  emulated::KernelEntry entry;
  test::CubinKernel facts;          ///< argumentBytes is 0: unknown
  unsigned dynamicBytes = 48 << 10; ///< at most; raised by an attribute
};

/// Work for a stream, done later.
using Operation = std::function<Result()>;

struct StreamTag {
  std::deque<Operation> queue;
  bool capturing = false, broken = false; ///< a capture that is invalid
  std::thread::id capturer;
  std::vector<GraphNode> captured;
  Graph into = nullptr; ///< what is captured becomes a part of, or null
  /// The stream whose capture this one has joined, by waiting for an event of
  /// it; and whether that stream has yet to wait for what was done here.
  Stream joined = nullptr;
  bool unjoined = false;
  Stream capture() { return capturing ? this : joined; }
};
struct EventTag {
  bool timing;
  Stream stream = nullptr;  ///< where it was recorded last
  Stream capture = nullptr; ///< whose capture that was a part of
  unsigned pending = 0;     ///< records that were not reached yet
  std::chrono::steady_clock::time_point reached = {};
};
struct GraphNodeTag {
  Operation operation;
  int type;
  Graph body = nullptr; ///< of a conditional node
  Graph bodies[1] = {};
};
struct GraphTag {
  std::vector<GraphNode> nodes = {}; ///< in the order of their execution
  bool isBody = false;
  unsigned runs = 0; ///< that are instantiated
  ~GraphTag();
};
struct GraphRunTag {
  std::vector<Operation> operations;
  Graph graph;
  bool isUploaded = false;
};

// Those of cuBLASLt.
struct LtHandleTag {};
struct LtOperationTag {
  bool transposeA = false, transposeB = false;
  std::set<std::uint64_t> ran = {}; ///< ways whose code is loaded
};
struct LtLayoutTag {
  int type;
  std::uint64_t rows, columns, leading;
  std::uint64_t batches = 1, stride = 0;
};
struct LtPreferenceTag {
  std::uint64_t workspaceBytes = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256}; ///< of A, B, C, D
};

} // namespace tessera::hal::cuda

namespace tessera::test {

using namespace tessera::hal::cuda;

/// Results that only the fake gives.
enum : Result {
  kInvalidValue = 1,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotReady = 600,
  kOutOfResources = 701,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureWrongThread = 908,
};

/// What a function needs before it does anything.
enum Needs : unsigned {
  kNothing = 0,
  kInitialized = 1,
  kContext = 2,   ///< current on this thread; not after a sticky error
  kFree = 4,      ///< likewise, but does its work after a sticky error too
  kNoCapture = 8, ///< not by a thread that captures
};

/// A device's memory: inaccessible but while the GPU works.
class Memory {
public:
  Address allocate(std::size_t bytes);
  bool release(Address address);
  /// Whether [address, address + bytes) lies in one allocation.
  bool holds(Address address, std::size_t bytes) const;
  std::size_t used() const;
  std::size_t count() const { return blocks.size(); }
  std::vector<emulated::BufferRange> ranges() const;
  void protect(bool accessible) const;

private:
  std::map<Address, std::size_t> blocks;
};

/// Everything; one for the process, never destroyed.
struct FakeGpus {
  static FakeGpus &get();

  std::recursive_mutex mutex;
  bool initialized = false;
  Result sticky = kSuccess;
  std::map<std::string, unsigned> calls; ///< of each function since reset()
  std::string misuse;                    ///< lines, of what a caller got wrong
  std::map<int, std::unique_ptr<ContextTag>> contexts;
  Memory memory;
  std::map<std::byte *, std::size_t> pinned;
  std::set<Module> modules;
  std::set<Kernel> kernels;
  std::set<Stream> streams;
  std::set<Event> events;
  std::set<Graph> graphs, bodies; ///< those of conditional nodes apart
  std::map<Condition, unsigned> conditions;
  std::set<GraphRun> runs;
  std::set<LtHandle> ltHandles;
  std::set<LtOperation> ltOperations;
  std::set<LtLayout> ltLayouts;
  std::set<LtPreference> ltPreferences;
  emulated::BlockMachine machine;
  /// Code for the emulated GPU, by artifact and kind of device, of those that
  /// TESSERA_FAKE_CUDA_TWINS names.
  std::map<std::string, std::vector<std::shared_ptr<hal::LoadedCode>>> twins;
  std::uint64_t launches = 0;
  /// The clock of events, where TESSERA_FAKE_CUDA_MICROSECONDS says how long a
  /// kernel takes.
  std::uint64_t microseconds = 0;

  /// The start of every function: what it must not go on for.
  Result enter(const char *function, unsigned needs);
  /// Notes what is wrong and returns `result`.
  Result wrong(std::string_view what, Result result = kInvalidValue);
  /// Queues the operation or adds it to what is captured.
  Result submit(Stream stream, Operation operation, int type = kKernelNode);
  /// Does what is queued until `until` is true. What returns kNotReady, as it
  /// waits for a GPU of another thread, is tried again, and others may work
  /// meanwhile; or it stays queued.
  Result work(Stream stream, const std::function<bool()> &until,
              bool waits = true);
  /// Does what is queued anywhere and waits for nobody.
  void finish();
  bool holdsPinned(const void *address, std::size_t bytes) const;
  Result runKernel(Kernel kernel, unsigned grid, unsigned threads,
                   unsigned sharedBytes,
                   const std::vector<std::uint64_t> &arguments);
  /// tessera_count_iterations of the runtime.
  Result countIteration(const std::vector<std::uint64_t> &arguments);
  std::chrono::steady_clock::time_point now() const;
  /// What lives, line by line; empty if nothing does.
  std::string leaks() const;
  void reset();

  /// Takes a handle out of its set and deletes it.
  template <typename Handle>
  Result destroy(std::set<Handle> &set, Handle handle, std::string_view what) {
    if (!set.erase(handle))
      return wrong(what, kInvalidHandle);
    delete handle;
    return sticky;
  }
};

/// The number in an environment variable.
std::uint64_t setting(const char *variable, std::uint64_t otherwise);

/// Ten times the compute capability.
inline unsigned capability() {
  return static_cast<unsigned>(setting("TESSERA_FAKE_CUDA_CAPABILITY", 80));
}
/// Shared memory of a block at most: sm_80's or sm_90's.
inline unsigned mostSharedBytes() {
  return capability() < 90 ? 163 << 10 : 227 << 10;
}

/// This thread's stack of contexts.
std::vector<Context> &currentContexts();

// Every function of Api.h, with its signature.
#define TESSERA_FAKE_DECLARE(member, symbol, parameters)                       \
  extern "C" Result symbol parameters;
TESSERA_CUDA_FUNCTIONS(TESSERA_FAKE_DECLARE)
TESSERA_CUDA_LOOP_FUNCTIONS(TESSERA_FAKE_DECLARE)
#undef TESSERA_FAKE_DECLARE

} // namespace tessera::test

/// Begins a function of the driver; `all` is the state, locked.
#define FAKE_ENTER(function, needs)                                            \
  FakeGpus &all = FakeGpus::get();                                             \
  const std::lock_guard lock(all.mutex);                                       \
  if (const Result early = all.enter(#function, needs); early != kSuccess)     \
  return early

#define FAKE_REQUIRE(condition, what, result)                                  \
  if (!(condition))                                                            \
  return all.wrong(what, result)
