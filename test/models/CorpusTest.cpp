// Replays a fuzzer's corpus: each file whole, cut at every byte, and with
// every byte flipped in turn. The checks are the fuzz target's own.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

void run(const std::string &text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(text.data()),
                         text.size());
}

TEST(Corpus, ReplaysWholeCutAndFlipped) {
  size_t files = 0;
  for (const char *folder : {TESSERA_CORPUS}) {
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::string text{std::istreambuf_iterator<char>(file), {}};
      SCOPED_TRACE(entry.path());
      run(text);
      for (size_t length = 0; length < text.size(); ++length)
        run(text.substr(0, length));
      for (char &each : text) {
        char kept = each;
        for (char bits : {'\x01', '\x10', '\x20', '\x80'}) {
          each = char(kept ^ bits);
          run(text);
        }
        each = kept;
      }
      ++files;
    }
  }
  EXPECT_GE(files, 8u);
}

} // namespace
