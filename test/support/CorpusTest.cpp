// Replays a fuzzer's corpus: each file whole and, where TESSERA_CORPUS_MUTATE
// says so, cut at every byte and with every byte changed in turn. The checks
// are the fuzz target's own.
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

void runMutants(std::string text) {
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
}

TEST(Corpus, Replays) {
  size_t files = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(TESSERA_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    SCOPED_TRACE(entry.path());
    run(text);
    if (TESSERA_CORPUS_MUTATE)
      runMutants(std::move(text));
    ++files;
  }
  EXPECT_GE(files, 8u);
}

} // namespace
