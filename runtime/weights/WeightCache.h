// The weight cache: files in the user's cache with converted weights.
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
/// headers), from the offset of every tensor, and from the running program's
/// own file: a change of any of these gives another key.
class WeightCache {
public:
  /// The size limit of the folder.
  static constexpr uint64_t kMostBytes = uint64_t(32) << 30;
  /// All files of this user's weight cache.
  static std::vector<CachedFile> files(const std::string &cache);

  /// Empty if weights cannot be cached: the state is not in this process's
  /// memory, or has other tensors between the parameters, or there is no
  /// checkpoint. Must be called before the weights are read, so that a
  /// checkpoint that changes during that gets another key.
  static std::optional<WeightCache> of(const std::string &folder,
                                       const std::string &checkpoint,
                                       ModelState &model);

  /// Whether the weights are in the model now. A file that is damaged is
  /// removed if `mayWrite`, and `note` says so.
  bool load(bool mayWrite, std::string &note) const;
  /// Stores the model's weights; evicts the least recently used files if
  /// necessary.
  Status store(std::stop_token stop, uint64_t most = kMostBytes) const;
  /// Removes the file.
  void remove() const;

  const std::string &path() const { return file; }
  uint64_t bytes() const { return memory.size(); }

private:
  Status makeRoom(uint64_t most) const;

  std::string folder, file, key;
  std::span<std::byte> memory; // of all parameters
};

} // namespace tessera
