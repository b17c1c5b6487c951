// What a command finds at the place that a user names.
#include "compiler/api/ModelSource.h"
#include "test/support/ScratchDirectory.h"

#include <fstream>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::Test;

class ModelSourceTest : public Test {
protected:
  std::string write(const std::string &name, const std::string &text) {
    std::string path = scratch / name;
    std::ofstream(path) << text;
    return path;
  }
  static std::string errorOf(const std::string &place) {
    auto found = findModel(place);
    EXPECT_FALSE(found.ok());
    return found.ok() ? "" : std::string(found.message());
  }
  testing::ScratchDirectory scratch;
};

TEST_F(ModelSourceTest, FindsADirectory) {
  auto found = findModel(TESSERA_SPECS "/tiny-gpt2/.");
  ASSERT_TRUE(found.ok()) << found.message();
  ASSERT_TRUE(*found);
  EXPECT_EQ((*found)->name, "tiny-gpt2");
  EXPECT_EQ((*found)->spec.family, models::Family::Gpt2);
  EXPECT_FALSE((*found)->packaged);
}

TEST_F(ModelSourceTest, LeavesWhatMayBeARun) {
  auto found = findModel(scratch.path);
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_FALSE(*found);
}

TEST_F(ModelSourceTest, SaysWhatToDoWithOtherFiles) {
  EXPECT_NE(errorOf(write("m.gguf", "GGUF")).find("truncated or damaged"),
            std::string::npos);
  EXPECT_NE(errorOf(write("config.json", "{}"))
                .find("give its directory: " + scratch.path),
            std::string::npos);
  EXPECT_NE(errorOf(write("model.safetensors", "")).find("give its directory"),
            std::string::npos);
  EXPECT_NE(errorOf(write("notes.txt", "hello")).find("neither a directory"),
            std::string::npos);
}

TEST_F(ModelSourceTest, NamesTheLastPartOfAPath) {
  EXPECT_EQ(lastNameOf("a/run/."), "run");
  EXPECT_EQ(lastNameOf("a/run/"), "run");
  EXPECT_EQ(lastNameOf("a/b/../run"), "run");
}

TEST_F(ModelSourceTest, RefusesOptionsOfAPackagedModelAlone) {
  auto found = findModel(TESSERA_SPECS "/tiny-gpt2");
  ASSERT_TRUE(found.ok() && *found);
  ProgramOptions options;
  options.set = {"inference.context=8"};
  EXPECT_TRUE(checkProgramOptions(**found, options).ok());
}

} // namespace
} // namespace tessera
