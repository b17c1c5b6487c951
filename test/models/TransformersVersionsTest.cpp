// Configs of one small model of each family, written by transformers 4.57.6 and
// 5.23.0 or 5.24.0 (save_pretrained): both versions describe the same model.
#include "models/HfConfig.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace tessera::models {
namespace {

const std::filesystem::path kInputs = TESSERA_SOURCE_DIR "/test/models/Inputs";

StatusOr<ModelSpec> specOf(const std::filesystem::path &file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return parseHfConfig(text.str(), file.string());
}

TEST(TransformersVersions, DescribeTheSameModels) {
  int families = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(kInputs / "transformers-5")) {
    SCOPED_TRACE(entry.path().filename());
    auto v5 = specOf(entry.path());
    auto v4 = specOf(kInputs / "transformers-4" / entry.path().filename());
    ASSERT_TRUE(v5.ok()) << v5.message();
    ASSERT_TRUE(v4.ok()) << v4.message();
    // Version 5 writes the element type of stored weights with the weights
    // alone.
    EXPECT_EQ(v5->checkpointDtype, "");
    v4->checkpointDtype.clear();
    EXPECT_EQ(*v5, *v4);
    ++families;
  }
  EXPECT_EQ(families, 34);
}

} // namespace
} // namespace tessera::models
