// A library with NCCL's interface for ranks that are threads of one process.
// Without a stream the device is the host's memory, and every call is done when
// the group ends, which blocks until the other ranks have done their part. With
// one, which is the fake driver's (test/runtime/hal/cuda), it is done there, in
// the stream's order. It reads types and operators by NCCL's own numbers, and
// refuses what NCCL refuses.
#include "runtime/comm/Reduce.h"
#include "runtime/comm/nccl/NcclApi.h"

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

using namespace tessera::comm;
using namespace tessera::comm::nccl;

namespace {

constexpr Result kInvalidArgument = 4, kInvalidUsage = 5;
using Bytes = std::vector<std::byte>;

/// What the ranks of one id share.
struct Wires {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Bytes>> messages; // from, to
};

std::mutex allMutex;
std::map<std::string, std::weak_ptr<Wires>> all; // by id
int ids = 0;

} // namespace

struct tessera::comm::nccl::CommunicatorTag {
  std::shared_ptr<Wires> wires;
  int rank = 0, ranks = 1;

  void post(int to, const void *from, std::size_t bytes) const {
    const auto *first = static_cast<const std::byte *>(from);
    std::lock_guard lock(wires->mutex);
    wires->messages[{rank, to}].emplace_back(first, first + bytes);
    wires->changed.notify_all();
  }
  bool hasFrom(int from) const {
    std::lock_guard lock(wires->mutex);
    return !wires->messages[{from, rank}].empty();
  }
  bool hasFromAll() const {
    for (int from = 0; from < ranks; ++from)
      if (!hasFrom(from))
        return false;
    return true;
  }
  Bytes take(int from) const {
    std::unique_lock lock(wires->mutex);
    auto &line = wires->messages[{from, rank}];
    wires->changed.wait(lock, [&] { return !line.empty(); });
    Bytes message = std::move(line.front());
    line.pop_front();
    return message;
  }
};

namespace {

/// What a call does when its group ends: first what it sends, then, once that
/// is there, what it receives.
struct Call {
  Stream stream;
  std::function<void()> post;
  std::function<bool()> isReady;
  std::function<Result()> collect;
};
thread_local std::vector<Call> grouped;
thread_local int depth = 0;

/// Of the driver: the operation is to be tried again.
constexpr Result kDriverNotReady = 600;
using Submit = Result(Stream stream, const std::function<Result()> &operation);

Submit *fakeDriver() {
  void *library = ::dlopen(std::getenv("TESSERA_LIBCUDA"),
                           RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return reinterpret_cast<Submit *>(::dlsym(library, "tesseraFakeSubmit"));
}

/// All of a group is in one stream. A graph does it many times.
Result endOnStream(std::vector<Call> calls) {
  struct Group {
    std::vector<Call> calls;
    std::size_t next = 0;
  };
  const Stream stream = calls.front().stream;
  auto group = std::make_shared<Group>(Group{std::move(calls)});
  Submit *submit = fakeDriver();
  const Result posted = submit(stream, [group]() -> Result {
    for (const Call &call : group->calls)
      call.post();
    return kSuccess;
  });
  if (posted != kSuccess)
    return posted;
  return submit(stream, [group]() -> Result {
    for (; group->next < group->calls.size(); ++group->next) {
      const Call &call = group->calls[group->next];
      if (!call.isReady())
        return kDriverNotReady;
      if (const Result result = call.collect(); result != kSuccess)
        return result;
    }
    group->next = 0;
    return kSuccess;
  });
}

Result endGroup() {
  std::vector<Call> calls;
  calls.swap(grouped);
  if (!calls.empty() && calls.front().stream)
    return endOnStream(std::move(calls));
  for (const Call &call : calls)
    call.post();
  Result result = kSuccess;
  for (const Call &call : calls)
    if (const Result one = call.collect(); result == kSuccess)
      result = one;
  return result;
}

Result add(Call call) {
  grouped.push_back(std::move(call));
  return depth == 0 ? endGroup() : kSuccess;
}

std::size_t widthOf(int type) {
  constexpr std::size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? widths[type] : 0;
}

ElementType elementType(int type) {
  constexpr ElementType types[] = {
      ElementType::i8,  ElementType::u8,  ElementType::i32, ElementType::i32,
      ElementType::i64, ElementType::i64, ElementType::f16, ElementType::f32,
      ElementType::f64, ElementType::bf16};
  return types[type];
}

Result store(void *to, const Bytes &message, std::size_t bytes) {
  if (message.size() != bytes)
    return kInvalidArgument;
  if (bytes != 0)
    std::memcpy(to, message.data(), bytes);
  return kSuccess;
}

/// Everybody's contribution, added up, if this rank wants the result.
Result collectSum(Communicator communicator, void *to, std::size_t count,
                  int type, int op) {
  std::vector<Bytes> messages;
  std::vector<const std::byte *> contributions;
  for (int from = 0; from < communicator->ranks; ++from) {
    messages.push_back(communicator->take(from));
    if (messages.back().size() != count * widthOf(type))
      return kInvalidArgument;
    contributions.push_back(messages.back().data());
  }
  const Reduction reduction = op == 0   ? Reduction::sum
                              : op == 2 ? Reduction::max
                                        : Reduction::min;
  reduceInOrder(elementType(type), reduction, contributions,
                static_cast<std::byte *>(to), count);
  return kSuccess;
}

bool isBad(Communicator communicator, int type, int op = 0) {
  return !communicator || widthOf(type) == 0 || op == 1 || op < 0 || op > 3;
}

} // namespace

extern "C" {

Result ncclGetVersion(int *version) {
  *version = 22100;
  return kSuccess;
}
const char *ncclGetErrorString(Result result) {
  return result == kInvalidArgument ? "invalid argument" : "invalid usage";
}
const char *ncclGetLastError(Communicator) { return "made up"; }

Result ncclGetUniqueId(UniqueId *id) {
  std::lock_guard lock(allMutex);
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::memcpy(id->bytes + 100, &++ids, sizeof(ids)); // all bytes must arrive
  return kSuccess;
}

Result ncclCommInitRank(Communicator *communicator, int ranks, UniqueId id,
                        int rank) {
  std::lock_guard lock(allMutex);
  std::weak_ptr<Wires> &known = all[std::string(id.bytes, sizeof(id.bytes))];
  std::shared_ptr<Wires> wires = known.lock();
  if (!wires)
    known = wires = std::make_shared<Wires>();
  if (rank < 0 || rank >= ranks)
    return kInvalidArgument;
  *communicator = new CommunicatorTag{wires, rank, ranks};
  return kSuccess;
}
Result ncclCommDestroy(Communicator communicator) {
  delete communicator;
  return kSuccess;
}
Result ncclCommAbort(Communicator communicator) {
  delete communicator;
  return kSuccess;
}
Result ncclCommGetAsyncError(Communicator, Result *error) {
  *error = kSuccess;
  return kSuccess;
}

Result ncclGroupStart() {
  ++depth;
  return kSuccess;
}
Result ncclGroupEnd() {
  if (depth == 0)
    return kInvalidUsage;
  return --depth == 0 ? endGroup() : kSuccess;
}

Result ncclSend(const void *from, std::size_t count, DataType type, int peer,
                Communicator communicator, Stream stream) {
  if (isBad(communicator, type) || peer < 0 || peer >= communicator->ranks)
    return kInvalidArgument;
  return add({stream,
              [=] { communicator->post(peer, from, count * widthOf(type)); },
              [] { return true; }, [] { return kSuccess; }});
}
Result ncclRecv(void *to, std::size_t count, DataType type, int peer,
                Communicator communicator, Stream stream) {
  if (isBad(communicator, type) || peer < 0 || peer >= communicator->ranks)
    return kInvalidArgument;
  return add({stream, [] {}, [=] { return communicator->hasFrom(peer); },
              [=] {
                return store(to, communicator->take(peer),
                             count * widthOf(type));
              }});
}

Result ncclReduce(const void *from, void *to, std::size_t count, DataType type,
                  Operator op, int root, Communicator communicator,
                  Stream stream) {
  if (isBad(communicator, type, op))
    return kInvalidArgument;
  return add(
      {stream, [=] { communicator->post(root, from, count * widthOf(type)); },
       [=] { return communicator->rank != root || communicator->hasFromAll(); },
       [=] {
         return communicator->rank == root
                    ? collectSum(communicator, to, count, type, op)
                    : kSuccess;
       }});
}
Result ncclAllReduce(const void *from, void *to, std::size_t count,
                     DataType type, Operator op, Communicator communicator,
                     Stream stream) {
  if (isBad(communicator, type, op))
    return kInvalidArgument;
  return add({stream,
              [=] {
                for (int rank = 0; rank < communicator->ranks; ++rank)
                  communicator->post(rank, from, count * widthOf(type));
              },
              [=] { return communicator->hasFromAll(); },
              [=] { return collectSum(communicator, to, count, type, op); }});
}
Result ncclReduceScatter(const void *from, void *to, std::size_t count,
                         DataType type, Operator op, Communicator communicator,
                         Stream stream) {
  if (isBad(communicator, type, op))
    return kInvalidArgument;
  const std::size_t bytes = count * widthOf(type);
  return add({stream,
              [=] {
                const auto *parts = static_cast<const std::byte *>(from);
                for (int rank = 0; rank < communicator->ranks; ++rank)
                  communicator->post(
                      rank, parts + static_cast<std::size_t>(rank) * bytes,
                      bytes);
              },
              [=] { return communicator->hasFromAll(); },
              [=] { return collectSum(communicator, to, count, type, op); }});
}
Result ncclBroadcast(const void *from, void *to, std::size_t count,
                     DataType type, int root, Communicator communicator,
                     Stream stream) {
  if (isBad(communicator, type) || root < 0 || root >= communicator->ranks)
    return kInvalidArgument;
  const std::size_t bytes = count * widthOf(type);
  return add({stream,
              [=] {
                if (communicator->rank == root)
                  for (int rank = 0; rank < communicator->ranks; ++rank)
                    communicator->post(rank, from, bytes);
              },
              [=] { return communicator->hasFrom(root); },
              [=] { return store(to, communicator->take(root), bytes); }});
}
Result ncclAllGather(const void *from, void *to, std::size_t count,
                     DataType type, Communicator communicator, Stream stream) {
  if (isBad(communicator, type))
    return kInvalidArgument;
  const std::size_t bytes = count * widthOf(type);
  return add({stream,
              [=] {
                for (int rank = 0; rank < communicator->ranks; ++rank)
                  communicator->post(rank, from, bytes);
              },
              [=] { return communicator->hasFromAll(); },
              [=] {
                auto *parts = static_cast<std::byte *>(to);
                for (int rank = 0; rank < communicator->ranks; ++rank)
                  if (const Result result =
                          store(parts + static_cast<std::size_t>(rank) * bytes,
                                communicator->take(rank), bytes);
                      result != kSuccess)
                    return result;
                return kSuccess;
              }});
}

} // extern "C"
