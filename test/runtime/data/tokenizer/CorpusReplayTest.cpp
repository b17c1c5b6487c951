// Replays a fuzzer's corpus through its target, whose checks are the test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

TEST(Corpus, Replays) {
  int files = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(TESSERA_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    SCOPED_TRACE(entry.path());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()),
                           bytes.size());
    ++files;
  }
  EXPECT_GE(files, 20);
}
