// Which file of the user's cache has the weights that a start makes.
#pragma once
#include "runtime/support/CacheFolder.h"
#include "runtime/weights/ModelState.h"

#include <optional>
#include <stop_token>
#include <string>

namespace tessera {

/// The weights of one checkpoint as one model's memory has them:
/// weights/KEY.weights in a folder. The key follows from the checkpoint's files
/// (where and what they are, how large, when they were changed, and their
/// headers), from where which tensor lies, and from the running program's own
/// file: whatever is another makes another key.
class WeightCache {
public:
  /// What the folder has is at most so large.
  static constexpr uint64_t kMostBytes = uint64_t(32) << 30;
  /// All that is kept in this user's cache.
  static std::vector<CachedFile> files(const std::string &cache);

  /// Nothing where weights cannot be kept: the state is not in this process's
  /// memory, or has other tensors between the parameters, or there is no
  /// checkpoint. To be asked before the weights are read, so that a checkpoint
  /// that changes meanwhile has another key.
  static std::optional<WeightCache> of(const std::string &folder,
                                       const std::string &checkpoint,
                                       ModelState &model);

  /// Whether the weights are in the model now. A file that is damaged is
  /// removed if `mayWrite`, and `note` says so.
  bool load(bool mayWrite, std::string &note) const;
  /// Keeps the model's weights; files that were used longest ago make room.
  Status store(std::stop_token stop, uint64_t most = kMostBytes) const;
  /// Forgets them.
  void remove() const;

  const std::string &path() const { return file; }
  uint64_t bytes() const { return memory.size(); }

private:
  Status makeRoom(uint64_t most) const;

  std::string folder, file, key;
  std::span<std::byte> memory; // of all parameters
};

} // namespace tessera
