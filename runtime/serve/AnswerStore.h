// Finished answers that may be asked for again, in memory and in bounds: those
// that nobody asked for longest make room.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Responses.h"

#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace tessera::serve {

/// A response that is still made, in the background.
class RunningResponse {
public:
  virtual ~RunningResponse() = default;
  virtual void cancel() = 0;
  /// Events with numbers above `after`, to the last. `obfuscate`: pieces are
  /// padded.
  virtual void follow(std::shared_ptr<HttpReply> reply, int64_t after,
                      bool obfuscate) = 0;
};

struct KeptAnswer {
  std::string id;
  std::vector<InputItem> input;
  std::string chat; ///< of a chat its JSON, without metadata
  Metadata metadata;
  std::shared_ptr<ResponseRecord> response;      ///< else null
  std::shared_ptr<RunningResponse> running = {}; ///< until it is done
  std::size_t bytes() const;
};

struct StoreLimits {
  std::size_t count = 1000;
  std::size_t bytes = std::size_t(64) << 20;
};

/// For one thread. What is finished and what still runs are weighed apart: what
/// runs pushes out nothing, and whoever puts it asks first whether it fits.
class AnswerStore {
public:
  explicit AnswerStore(StoreLimits limits) : limits(limits) {}
  AnswerStore(const AnswerStore &) = delete;
  AnswerStore &operator=(const AnswerStore &) = delete;
  /// What alone is too large is not kept. Those that run never make room.
  void put(KeptAnswer answer);
  /// Null if it is not there; else it is the latest that was asked for. Until
  /// the next put() or erase().
  KeptAnswer *find(const std::string &id);
  void erase(const std::string &id);
  /// After one was changed.
  void weigh(const std::string &id);

  /// In the order in which they were put, the oldest first.
  template <typename Visit> void forEach(const Visit &visit) const {
    for (const auto &[serial, entry] : entries)
      visit(entry.answer);
  }
  std::size_t count() const { return entries.size(); }
  std::size_t bytes() const { return finished.bytes + running.bytes; }
  /// Of what runs, which has as much room as what is finished.
  std::size_t runningBytes() const { return running.bytes; }
  std::size_t room() const { return limits.bytes; }
  uint64_t evicted() const { return gone; }
  bool keepsAny() const { return limits.count != 0; }

private:
  struct Entry {
    KeptAnswer answer;
    std::size_t bytes;
    std::list<uint64_t>::iterator use;
    bool runs; ///< when it was weighed
  };
  struct Sum {
    std::size_t count = 0, bytes = 0;
  };
  using Entries = std::map<uint64_t, Entry>;
  Sum &sumOf(const Entry &entry) { return entry.runs ? running : finished; }
  void add(const Entry &entry);
  void subtract(const Entry &entry);
  void makeRoom();
  void remove(Entries::iterator at);

  const StoreLimits limits;
  Entries entries; ///< by their number
  std::unordered_map<std::string, uint64_t> numbers;
  std::list<uint64_t> used; ///< the latest first
  Sum finished, running;
  uint64_t last = 0, gone = 0;
};

} // namespace tessera::serve
