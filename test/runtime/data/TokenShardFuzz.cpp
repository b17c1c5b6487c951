// libFuzzer target: whatever the bytes, a token shard or a split's index.json
// is read or refused with one line, and what is read stays within its bounds.
#include "runtime/data/TokenSplit.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

using namespace tessera;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

/// Reads a shard from a file in memory, so that it is mapped as a real one is.
static void readShard(const uint8_t *data, size_t size) {
  int fd = ::memfd_create("shard", 0);
  require(fd >= 0 && ::write(fd, data, size) == static_cast<ssize_t>(size));
  auto shard = TokenShard::open("/proc/self/fd/" + std::to_string(fd));
  ::close(fd);
  if (!shard.ok()) {
    require(shard.message().find('\n') == std::string::npos);
    return;
  }
  require(shard->size() <= size);
  std::vector<int32_t> tokens(shard->size());
  if (shard->read(0, tokens).ok())
    for (int32_t token : tokens)
      require(token >= 0 &&
              static_cast<uint64_t>(token) < shard->header().vocabSize);
  (void)shard->verify();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  readShard(data, size);
  std::string_view text(reinterpret_cast<const char *>(data), size);
  auto index = parseSplitIndex(text, "fuzz");
  if (!index.ok()) {
    require(index.message().find('\n') == std::string::npos);
    return 0;
  }
  require(index->separator < index->vocabSize);
  for (const SplitIndex::Shard &shard : index->shards)
    require(shard.file.find('/') == std::string::npos && shard.file != "..");
  return 0;
}
