#include "runtime/data/chat/PackedWriter.h"
#include "runtime/data/chat/Packer.h"

#include <algorithm>

namespace tessera::chat {

/// A window of fewer rows would leave much of the last ones empty.
static constexpr uint64_t leastWindowRows = 64;
/// Rows with more room, as a share of a row, wait for the next window.
static constexpr uint64_t mostRoom = 32;

PackedWriter::PackedWriter(std::string folder, PackedIndex &index,
                           const PackedWriterOptions &options)
    : folder(std::move(folder)), index(index), options(options) {
  this->options.window =
      std::max(options.window, leastWindowRows * index.sequence);
  shard.sequence = uint32_t(index.sequence);
  shard.vocabSize = index.vocabSize;
  shard.tokenizerHash = index.tokenizerHash;
}

Status PackedWriter::add(EncodedExample example, uint16_t source,
                         uint64_t line) {
  for (const EncodedDocument &document : example) {
    windowTokens += document.tokens.size();
    index.sources[source].tokens += document.tokens.size();
    ++index.sources[source].documents;
  }
  window.push_back({std::move(example), source, line});
  return windowTokens >= options.window ? packWindow(/*isLast=*/false)
                                        : Status::success();
}

void PackedWriter::addRow(std::span<const uint32_t> items) {
  uint32_t documents = 0;
  for (uint32_t number : items) {
    const Item &item = window[number];
    for (const EncodedDocument &each : item.documents) {
      shard.tokens.insert(shard.tokens.end(), each.tokens.begin(),
                          each.tokens.end());
      shard.supervised.insert(shard.supervised.end(), each.supervised.begin(),
                              each.supervised.end());
      shard.documents.push_back(
          {uint32_t(each.tokens.size()), each.kind, item.source, item.line});
      // The first token is never a target.
      index.supervisedTokens += uint64_t(
          std::count(each.supervised.begin() + 1, each.supervised.end(), 1));
      ++documents;
    }
  }
  shard.rowDocuments.push_back(documents);
}

static uint32_t lengthOf(const EncodedExample &example) {
  uint32_t length = 0;
  for (const EncodedDocument &each : example)
    length += uint32_t(each.tokens.size());
  return length;
}

/// Removes from `rows` those with much room, unless they are half of the window
/// and would be packed again and again.
void PackedWriter::keepRows(std::vector<std::vector<uint32_t>> &rows,
                            std::span<const uint32_t> lengths) {
  auto tokensOf = [&](const std::vector<uint32_t> &row) {
    uint64_t tokens = 0;
    for (uint32_t item : row)
      tokens += lengths[item];
    return tokens;
  };
  const uint64_t least = index.sequence - index.sequence / mostRoom;
  auto isFull = [&](const auto &row) { return tokensOf(row) >= least; };
  auto kept = std::partition(rows.begin(), rows.end(), isFull);
  uint64_t tokens = 0;
  for (auto row = kept; row != rows.end(); ++row)
    tokens += tokensOf(*row);
  if (tokens <= options.window / 2)
    rows.erase(kept, rows.end());
}

Status PackedWriter::packWindow(bool isLast) {
  std::vector<uint32_t> lengths;
  for (const Item &item : window)
    lengths.push_back(lengthOf(item.documents));
  auto rows = packBestFit(lengths, shard.sequence);
  if (!isLast)
    keepRows(rows, lengths);
  for (const auto &row : rows) {
    addRow(row);
    for (uint32_t item : row)
      window[item].documents.clear(); // written
    if (shard.tokens.size() >= options.shardTokens)
      TESSERA_RETURN_IF_ERROR(writeShard());
  }
  std::erase_if(window,
                [](const Item &item) { return item.documents.empty(); });
  windowTokens = 0;
  for (const Item &item : window)
    windowTokens += lengthOf(item.documents);
  return Status::success();
}

Status PackedWriter::writeShard() {
  const std::string name = fmt::format("shard-{:05}", index.shards.size());
  TESSERA_RETURN_IF_ERROR(writePackedShard(folder, name, shard));
  index.shards.push_back({name, shard.rowDocuments.size(),
                          shard.documents.size(), shard.tokens.size()});
  index.rows += shard.rowDocuments.size();
  index.documents += shard.documents.size();
  index.tokens += shard.tokens.size();
  shard.tokens.clear();
  shard.supervised.clear();
  shard.documents.clear();
  shard.rowDocuments.clear();
  return Status::success();
}

Status PackedWriter::finish() {
  TESSERA_RETURN_IF_ERROR(packWindow(/*isLast=*/true));
  if (!shard.rowDocuments.empty())
    TESSERA_RETURN_IF_ERROR(writeShard());
  return writePackedIndex(index, folder);
}

} // namespace tessera::chat
