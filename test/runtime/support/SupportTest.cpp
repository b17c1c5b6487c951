#include "runtime/support/CpuFeatures.h"
#include "runtime/support/Hash.h"
#include "runtime/support/MappedFile.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

using namespace tessera;

namespace {

std::span<const std::byte> bytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A file that is removed at the end of the test.
struct TemporaryFile {
  explicit TemporaryFile(std::string_view text)
      : path(testing::TempDir() + "tessera-support-" +
             std::to_string(::getpid())) {
    std::ofstream(path, std::ios::binary) << text;
  }
  ~TemporaryFile() { ::unlink(path.c_str()); }
  std::string path;
};

} // namespace

TEST(CpuFeatures, AgreesWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> flags;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("flags", 0) == 0) {
      std::istringstream words(line.substr(line.find(':') + 1));
      for (std::string word; words >> word;)
        flags.push_back(word);
      break;
    }
  if (flags.empty())
    GTEST_SKIP() << "/proc/cpuinfo lists no x86 flags here";
  const CpuFeatures cpu = CpuFeatures::detect();
  for (std::string_view name : CpuFeatures::knownNames())
    EXPECT_EQ(cpu.has(name),
              std::find(flags.begin(), flags.end(), name) != flags.end())
        << name;
  EXPECT_FALSE(CpuFeatures::brand().empty());
}

TEST(CpuFeatures, MadeUpProcessor) {
  const CpuFeatures cpu = CpuFeatures::of({"fma", "avx2"});
  EXPECT_TRUE(cpu.has("avx2"));
  EXPECT_FALSE(cpu.has("avx512f"));
  EXPECT_FALSE(cpu.has("no such feature"));
  EXPECT_EQ(cpu.names(), (std::vector<std::string_view>{"avx2", "fma"}));
}

TEST(Hash, KnownAnswerAndPieces) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2u); // XXH3-64 of nothing
  std::string text(5000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 31);
  Hasher64 hasher;
  for (std::size_t at = 0; at < text.size(); at += 777)
    hasher.update(bytesOf(std::string_view(text).substr(at, 777)));
  EXPECT_EQ(hasher.digest(), hash64(bytesOf(text)));
  text[4999] ^= 1;
  EXPECT_NE(hasher.digest(), hash64(bytesOf(text)));
}

TEST(MappedFile, MapsWhatTheFileHolds) {
  const TemporaryFile file("weights");
  auto mapped = MappedFile::open(file.path);
  ASSERT_TRUE(mapped.ok()) << mapped.message();
  EXPECT_EQ(mapped->text(), "weights");
  const TemporaryFile empty("");
  auto nothing = MappedFile::open(empty.path);
  ASSERT_TRUE(nothing.ok()) << nothing.message();
  EXPECT_TRUE(nothing->bytes().empty());
}

TEST(MappedFile, ErrorsNameThePath) {
  EXPECT_EQ(MappedFile::open("/no/such/file").message(),
            "/no/such/file: cannot open: No such file or directory");
  EXPECT_EQ(MappedFile::open("/tmp").message(), "/tmp: not a regular file");
}

TEST(ProcessMemory, SeesWhatWeTouch) {
  constexpr std::size_t bytes = std::size_t(32) << 20;
  const auto before = readProcessMemory();
  ASSERT_TRUE(before.ok()) << before.message();
  std::vector<char> block(bytes, 1);
  const auto after = readProcessMemory();
  ASSERT_TRUE(after.ok()) << after.message();
  EXPECT_EQ(block[bytes / 2], 1);
  EXPECT_GE(after->residentBytes, before->residentBytes + bytes / 2);
  EXPECT_GE(after->peakResidentBytes, after->residentBytes);
}

TEST(ProcessMemory, CountsTheTouchedPagesOfARegion) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pages = 40000; // more than one piece of the count
  void *raw = ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(raw, MAP_FAILED);
  // Huge pages would be touched whole.
  (void)::madvise(raw, pages * page, MADV_NOHUGEPAGE);
  auto *bytes = static_cast<std::byte *>(raw);
  EXPECT_EQ(*residentBytes({bytes, pages * page}), 0u);
  for (std::size_t touched : {std::size_t(0), std::size_t(7), pages - 1})
    bytes[touched * page] = std::byte(1);
  EXPECT_EQ(*residentBytes({bytes, pages * page}), 3 * page);
  EXPECT_EQ(*residentBytes({bytes, 7 * page + 1}), 2 * page);
  EXPECT_EQ(*residentBytes({}), 0u);
  ::munmap(raw, pages * page);
  EXPECT_FALSE(residentBytes({bytes, pages * page}).ok());
}

TEST(MappedFile, ReleasedPagesAreNotResidentAndReadTheSame) {
  std::string text(std::size_t(24) << 20, 'x');
  text[5] = text[text.size() - 1] = 'y';
  TemporaryFile temporary(text);
  auto file = MappedFile::open(temporary.path);
  ASSERT_TRUE(file.ok()) << file.message();
  const auto before = readProcessMemory();
  EXPECT_EQ(std::count(file->text().begin(), file->text().end(), 'y'), 2);
  const auto read = readProcessMemory();
  file->release(0, file->bytes().size());
  const auto after = readProcessMemory();
  ASSERT_TRUE(before.ok() && read.ok() && after.ok());
  EXPECT_GE(read->residentBytes, before->residentBytes + text.size() / 2);
  EXPECT_LE(after->residentBytes, before->residentBytes + text.size() / 4);
  EXPECT_EQ(std::count(file->text().begin(), file->text().end(), 'y'), 2);
  file->release(text.size() - 1, 100); // past the end is no error
}

TEST(StopSignals, TheFirstIsRememberedTheSecondKills) {
  ASSERT_TRUE(catchStopSignals().ok());
  EXPECT_FALSE(stopRequested());
  std::raise(SIGTERM);
  EXPECT_TRUE(stopRequested());
  EXPECT_EQ(stopSignal(), SIGTERM);
  EXPECT_EXIT(
      {
        (void)catchStopSignals();
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}
