// The file around an artifact: footer, hash, both kinds of file, every cut and
// every flipped bit.
#include "runtime/artifact/ArtifactReader.h"
#include "test/runtime/artifact/TestArtifact.h"

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::test;

namespace {

/// A file in memory, so that thousands of variants cost no disk.
class ArtifactFile : public testing::Test {
protected:
  ArtifactFile()
      : descriptor(::memfd_create("artifact", MFD_CLOEXEC)),
        path("/proc/self/fd/" + std::to_string(descriptor)) {}
  ~ArtifactFile() override { ::close(descriptor); }
  StatusOr<ArtifactReader> open(std::string_view bytes) {
    EXPECT_EQ(::ftruncate(descriptor, 0), 0);
    EXPECT_EQ(::pwrite(descriptor, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return ArtifactReader::open(path);
  }
  int descriptor;
  std::string path;
};

} // namespace

TEST_F(ArtifactFile, OpensPlainFile) {
  auto reader = open(appendedBytes(0, pack(smallArtifact())));
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_EQ(reader->share().state()->size(), 3u);
  EXPECT_TRUE(reader->hasProgram("train_step"));
  EXPECT_FALSE(reader->hasProgram("eval_step"));
  EXPECT_EQ(reader->programNames(), "train_step");
  EXPECT_EQ(reader->bytes(), pack(smallArtifact()).size());
}

TEST_F(ArtifactFile, OpensBehindAnExecutableOfAnyLength) {
  const std::string artifact = pack(smallArtifact());
  for (const std::size_t prefix : {1u, 63u, 64u, 65u, 4097u}) {
    const std::string executable(prefix, '\x7f');
    auto reader = open(executable + appendedBytes(prefix, artifact));
    ASSERT_TRUE(reader.ok()) << reader.message();
    EXPECT_EQ(reader->share().devices()->Get(0)->programs()->size(), 1u);
  }
}

TEST_F(ArtifactFile, MappingOutlivesTheFirstReader) {
  StatusOr<ArtifactReader> copy = Status::error("not yet");
  {
    auto reader = open(appendedBytes(0, pack(smallArtifact())));
    ASSERT_TRUE(reader.ok());
    copy = *reader;
  }
  EXPECT_EQ(copy->root().rebuild_command()->str(),
            "tessera compile models/specs/test -o test.tsr");
}

TEST_F(ArtifactFile, EveryTruncationIsRefused) {
  const std::string whole = appendedBytes(0, pack(smallArtifact()));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    auto reader = open(std::string_view(whole).substr(0, length));
    ASSERT_FALSE(reader.ok()) << "cut at " << length;
    ASSERT_EQ(reader.message().find(path), 0u) << reader.message();
  }
}

TEST_F(ArtifactFile, EveryFlippedBitIsRefused) {
  std::string bytes = appendedBytes(0, pack(smallArtifact()));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    ASSERT_FALSE(open(bytes).ok()) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  EXPECT_TRUE(open(bytes).ok());
}

TEST_F(ArtifactFile, TrailingBytesAreRefused) {
  const std::string whole = appendedBytes(0, pack(smallArtifact()));
  EXPECT_NE(open(whole + "x").message().find("no artifact footer"),
            std::string::npos);
}

TEST_F(ArtifactFile, FooterThatPointsElsewhere) {
  const std::string artifact = pack(smallArtifact());
  const auto withFooter = [&](Footer footer) {
    return open(artifact + std::string(reinterpret_cast<const char *>(&footer),
                                       kFooterBytes))
        .message();
  };
  Footer footer = makeFooter(0, artifact);
  footer.offset = ~std::uint64_t(0) - 63;
  EXPECT_NE(withFooter(footer).find("does not end where the footer starts"),
            std::string::npos);
  footer = makeFooter(0, artifact);
  footer.bytes -= 8;
  EXPECT_NE(withFooter(footer).find("does not end where the footer starts"),
            std::string::npos);
  footer = makeFooter(8, std::string_view(artifact).substr(8));
  EXPECT_NE(withFooter(footer).find("is not a multiple of 64"),
            std::string::npos);
  footer = makeFooter(0, artifact);
  footer.hash ^= 1;
  EXPECT_NE(withFooter(footer).find("offset 0x0: the artifact's hash is"),
            std::string::npos);
}

TEST_F(ArtifactFile, OtherFilesAreRefused) {
  EXPECT_EQ(ArtifactReader::open("/no/such.tsr").message(),
            "/no/such.tsr: cannot open: No such file or directory");
  EXPECT_NE(open("").message().find("0 bytes are too few"), std::string::npos);
  EXPECT_NE(open(std::string(4096, 'a')).message().find("no artifact footer"),
            std::string::npos);
  EXPECT_NE(open(appendedBytes(0, std::string(256, 'a')))
                .message()
                .find("identifier 'TSRA' is missing"),
            std::string::npos);
  EXPECT_NE(open(appendedBytes(0, "")).message().find("out of bounds"),
            std::string::npos);
}

TEST_F(ArtifactFile, OffsetsInErrorsAreOfTheFile) {
  ArtifactT artifact = smallArtifact();
  share(artifact).state[1]->offset = 7;
  const std::string bytes = pack(artifact);
  const auto *tensor =
      GetArtifact(bytes.data())->shares()->Get(0)->state()->Get(1);
  const auto inBuffer = static_cast<std::uint64_t>(
      reinterpret_cast<const char *>(tensor) - bytes.data());
  const std::string prefix(640, 'x');
  EXPECT_EQ(open(prefix + appendedBytes(prefix.size(), bytes)).message(),
            fmt::format("{}: offset {:#x}: state tensor 'w.exp_avg': offset 7 "
                        "is not a multiple of 64; rebuild it: tessera compile "
                        "models/specs/test -o test.tsr",
                        path, inBuffer + prefix.size()));
}
