// libFuzzer target: whatever the bytes, packed rows and their index.json are
// read or refused with one line, and what is read stays within its bounds.
//   input: u32 length of a token shard, the token shard, the .rows file; or an
//   index.json
#include "runtime/data/PackedIndex.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace tessera;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static void requireOneLine(const std::string &message) {
  require(!message.empty() && message.find('\n') == std::string::npos);
}

/// A file in memory, so that it is mapped as a real one is.
static StatusOr<MappedFile> mapped(std::string_view bytes) {
  int fd = ::memfd_create("rows", 0);
  require(fd >= 0 &&
          ::write(fd, bytes.data(), bytes.size()) == ssize_t(bytes.size()));
  auto file = MappedFile::open("/proc/self/fd/" + std::to_string(fd));
  ::close(fd);
  return file;
}

static void readRows(std::string_view input) {
  uint32_t length = 0;
  if (input.size() < sizeof(length))
    return;
  std::memcpy(&length, input.data(), sizeof(length));
  input.remove_prefix(sizeof(length));
  auto tokens = mapped(input.substr(0, length));
  auto rows = mapped(input.substr(std::min<size_t>(length, input.size())));
  require(tokens.ok() && rows.ok());
  auto shard = TokenShard::fromFile(tokens.take(), "fuzz.tok");
  if (!shard.ok())
    return;
  auto packed = PackedShard::fromFiles(shard.take(), rows.take(), "fuzz.rows");
  if (!packed.ok())
    return requireOneLine(packed.message());
  require(packed->rows() <= input.size());
  (void)packed->verify();
  PackedRowContents row;
  for (uint64_t i = 0; i < packed->rows(); ++i) {
    Status status = packed->read(i, row);
    if (!status.ok()) {
      requireOneLine(status.message());
      continue;
    }
    require(row.tokens.size() <= packed->header().sequence &&
            row.tokens.size() == row.supervised.size());
    uint64_t total = 0;
    for (const PackedDocument &document : row.documents)
      total += document.length;
    require(total == row.tokens.size());
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  readRows(text);
  auto index = parsePackedIndex(text, "fuzz");
  if (!index.ok()) {
    requireOneLine(index.message());
    return 0;
  }
  require(index->paddingToken < index->vocabSize);
  for (const PackedIndex::Shard &shard : index->shards)
    require(shard.file.find('/') == std::string::npos && shard.file != "..");
  return 0;
}
