// From encoded examples to the files of a folder of packed rows.
#pragma once
#include "runtime/data/chat/ChatEncoder.h"

namespace tessera::chat {

struct PackedWriterOptions {
  uint64_t window = 16 << 20;      ///< tokens that are packed together
  uint64_t shardTokens = 16 << 20; ///< about as many in a shard
};

/// Collects examples until they fill the window, packs them into rows and
/// writes shards. An example's documents stay together in a row.
class PackedWriter {
public:
  /// `index` has what is known before the first example; the writer counts in
  /// it, and it must outlive the writer. `folder` exists.
  PackedWriter(std::string folder, PackedIndex &index,
               const PackedWriterOptions &options);

  /// `example` has at most index.sequence tokens and is of source `source`, a
  /// number of index.sources.
  Status add(EncodedExample example, uint16_t source, uint64_t line);
  /// Writes what is left, and index.json.
  Status finish();

private:
  struct Item {
    EncodedExample documents;
    uint16_t source;
    uint64_t line;
  };
  /// Packs and writes the window; unless `isLast`, its emptiest rows stay.
  Status packWindow(bool isLast);
  void keepRows(std::vector<std::vector<uint32_t>> &rows,
                std::span<const uint32_t> lengths);
  void addRow(std::span<const uint32_t> items);
  Status writeShard();

  std::string folder;
  PackedIndex &index;
  PackedWriterOptions options;
  std::vector<Item> window;
  uint64_t windowTokens = 0;
  PackedShardContents shard;
};

} // namespace tessera::chat
