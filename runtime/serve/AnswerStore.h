// Stored responses and chats that clients may retrieve: in memory, within
// limits; the least recently used are evicted.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Responses.h"

#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace tessera::serve {

/// A response that is still generated, in the background.
class RunningResponse {
public:
  virtual ~RunningResponse() = default;
  virtual void cancel() = 0;
  /// Events with numbers above `after`, to the last. `obfuscate`: deltas are
  /// padded.
  virtual void follow(std::shared_ptr<HttpReply> reply, int64_t after,
                      bool obfuscate) = 0;
};

struct KeptAnswer {
  std::string id;
  std::vector<InputItem> input;
  std::string chat; ///< JSON of a chat, without metadata
  Metadata metadata;
  std::shared_ptr<ResponseRecord> response;      ///< else null
  std::shared_ptr<RunningResponse> running = {}; ///< while it runs
  std::size_t bytes() const;
};

struct StoreLimits {
  std::size_t count = 1000;
  std::size_t bytes = std::size_t(64) << 20;
};

/// Not thread-safe. Finished and running responses are counted separately:
/// running ones evict nothing, and callers check their size before put().
class AnswerStore {
public:
  explicit AnswerStore(StoreLimits limits) : limits(limits) {}
  AnswerStore(const AnswerStore &) = delete;
  AnswerStore &operator=(const AnswerStore &) = delete;
  /// An answer that exceeds the limits alone is not kept. Running ones are
  /// never evicted.
  void put(KeptAnswer answer);
  /// Null if it is not stored; else it becomes the most recently used. Valid
  /// until the next put() or erase().
  KeptAnswer *find(const std::string &id);
  void erase(const std::string &id);
  /// Call after an answer was changed.
  void weigh(const std::string &id);

  /// In insertion order, the oldest first.
  template <typename Visit> void forEach(const Visit &visit) const {
    for (const auto &[serial, entry] : entries)
      visit(entry.answer);
  }
  std::size_t count() const { return entries.size(); }
  std::size_t bytes() const { return finished.bytes + running.bytes; }
  /// Of running responses, whose limit equals that of finished ones.
  std::size_t runningBytes() const { return running.bytes; }
  std::size_t room() const { return limits.bytes; }
  uint64_t evicted() const { return gone; }
  bool keepsAny() const { return limits.count != 0; }

private:
  struct Entry {
    KeptAnswer answer;
    std::size_t bytes;
    std::list<uint64_t>::iterator use;
    bool runs; ///< when its size was counted
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
  Entries entries; ///< by number
  std::unordered_map<std::string, uint64_t> numbers;
  std::list<uint64_t> used; ///< most recent first
  Sum finished, running;
  uint64_t last = 0, gone = 0;
};

} // namespace tessera::serve
