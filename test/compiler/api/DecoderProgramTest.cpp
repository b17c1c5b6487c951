#include "compiler/api/DecoderProgram.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Keys = std::vector<std::string>;

TEST(DecoderProgram, ComputesInTheTypeOfTheCheckpoint) {
  models::ModelSpec spec;
  spec.checkpointDtype = "bfloat16";
  EXPECT_EQ(modelDefaults(spec, true, false), Keys{"precision.compute=bf16"});
  spec.checkpointDtype = "float16";
  EXPECT_EQ(modelDefaults(spec, true, true),
            (Keys{"precision.compute=fp32", "inference.layout=packed"}));
  // A recipe decides the precision itself.
  EXPECT_EQ(modelDefaults(spec, false, false), Keys{});
}

TEST(DecoderProgram, HasAFileThatVanishes) {
  std::string name;
  {
    TemporaryFile file;
    ASSERT_FALSE(bool(file.create()));
    name = file.name();
    std::ofstream(name) << "program";
    EXPECT_EQ(std::filesystem::file_size(name), 7u);
  }
  EXPECT_FALSE(std::filesystem::exists(name));
}

} // namespace
} // namespace tessera
