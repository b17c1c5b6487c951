// libFuzzer target: whatever the bytes, a teacher's probabilities are read or
// refused with one line, and what is read is a distribution over tokens of the
// vocabulary, the most probable first. The header's hash is mended, so that
// what is beyond it is reached.
#include "runtime/data/TeacherShard.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace tessera;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static void requireOneLine(const Status &status) {
  require(!status.message().empty() &&
          status.message().find('\n') == std::string::npos);
}

static void requireDistribution(const std::vector<int32_t> &tokens,
                                const std::vector<float> &values,
                                uint32_t vocabSize) {
  double sum = 0;
  for (const float value : values) {
    require(value <= 0 && value >= kLeastLogProb);
    sum += std::exp(double(value));
  }
  const std::set<int32_t> different(tokens.begin(), tokens.end());
  if (different.contains(kNoTeacherToken))
    return require(different.size() == 1);
  require(different.size() == tokens.size() && *different.begin() >= 0 &&
          *different.rbegin() < int64_t(vocabSize));
  require(std::is_sorted(values.begin(), values.end() - 1, std::greater()));
  require(std::abs(sum - 1) < 1e-3);
}

static void readRecords(const TeacherShard &shard, uint64_t count) {
  const uint32_t most = shard.facts().top;
  for (const std::size_t top : {std::size_t(most), std::size_t(1)}) {
    std::vector<int32_t> tokens(top);
    std::vector<float> values(top + 1);
    for (uint64_t i = 0; i < count; ++i) {
      if (const Status status = shard.read(i, 1, top, tokens, values);
          !status.ok()) {
        requireOneLine(status);
        continue;
      }
      requireDistribution(tokens, values, shard.facts().vocabSize);
    }
  }
}

static void readShard(std::string bytes) {
  constexpr std::size_t kHash = 48, kHeader = 64;
  PackedHeader of{};
  if (bytes.size() >= kHeader) {
    std::memcpy(&of.tokenCount, bytes.data() + 16, sizeof(of.tokenCount));
    std::memcpy(&of.tokensHash, bytes.data() + 24, sizeof(of.tokensHash));
    const uint64_t hash = hash64(std::as_bytes(std::span(bytes)).first(kHash));
    std::memcpy(bytes.data() + kHash, &hash, sizeof(hash));
  }
  const int fd = ::memfd_create("teacher", 0);
  require(fd >= 0 &&
          ::write(fd, bytes.data(), bytes.size()) == ssize_t(bytes.size()));
  const auto shard =
      TeacherShard::open("/proc/self/fd/" + std::to_string(fd), of);
  ::close(fd);
  if (!shard.ok())
    return requireOneLine(shard.status());
  // Without records any number of tokens fits.
  if (of.tokenCount == 0)
    return;
  require(shard->facts().top <= bytes.size());
  readRecords(*shard, of.tokenCount);
  (void)shard->verify();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  readShard({reinterpret_cast<const char *>(data), size});
  return 0;
}
