// The adapters of a server: names that requests may give instead of the
// model's, and the slots of the model that hold them.
#pragma once
#include "runtime/infer/engine/Request.h"
#include "runtime/weights/AdapterFile.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

/// Free slots and numbers of contents. A slot that requests still use after its
/// adapter was unloaded is free when the last of them has ended.
class AdapterSlots : public std::enable_shared_from_this<AdapterSlots> {
public:
  explicit AdapterSlots(int64_t count);
  /// Null: all are used. May be called, and the result dropped, by any thread.
  std::shared_ptr<const AdapterSlot> take();
  int64_t count() const { return total; }

private:
  class Taken;
  const int64_t total;
  std::mutex mutex; ///< guards the members below
  std::vector<int32_t> unused;
  uint64_t numbers = 0;
};

/// Not thread-safe, but for read() and write().
class Adapters {
public:
  struct Entry {
    std::string name, directory;
    std::shared_ptr<const AdapterSlot> slot;
    uint64_t requests = 0; ///< so far
  };
  /// Without slots.
  Adapters() = default;
  /// The model must outlive it.
  explicit Adapters(ModelState &model);

  int64_t slots() const { return free ? free->count() : 0; }
  const std::vector<Entry> &entries() const { return loaded; }
  /// Null if no adapter has that name.
  Entry *find(std::string_view name);

  /// A slot and what is to be written to it.
  struct Prepared {
    Entry entry;
    AdapterValues values;
  };
  /// Whether a name may be given to another adapter, and a slot for it.
  StatusOr<Entry> reserve(const std::string &name, const std::string &directory,
                          const std::vector<std::string> &taken);
  /// Reads the adapter's files; may be called by any thread.
  StatusOr<Prepared> read(Entry entry) const;
  /// Fills the slot; while the model is not running.
  Status write(const Prepared &prepared) const;
  /// The same in two steps of an adapter that is in memory, whose name the
  /// caller knows to be free. Any thread may take slots; null: none is free.
  std::shared_ptr<const AdapterSlot> takeSlot() const {
    return free ? free->take() : nullptr;
  }
  StatusOr<AdapterValues> valuesOf(const AdapterFile &adapter) const {
    return readAdapter(adapter, *model);
  }
  Status write(const AdapterValues &values, int64_t slot) const {
    return writeAdapter(values, *model, slot);
  }
  /// Requests that name it use this slot from here on.
  void replace(Entry entry);
  /// Requests may name it from here on.
  void add(Entry entry) { loaded.push_back(std::move(entry)); }
  /// Requests may no longer name it; those in progress keep the slot until they
  /// end. False if no adapter has that name.
  bool remove(std::string_view name);

  /// All of it at once, before the engine starts. `taken`: the model's names.
  Status load(const std::string &name, const std::string &directory,
              const std::vector<std::string> &taken);

private:
  ModelState *model = nullptr;
  std::shared_ptr<AdapterSlots> free;
  std::vector<Entry> loaded;
};

/// /metrics: the number of requests by adapter.
std::string adapterMetrics(const Adapters &adapters);

} // namespace tessera::serve
