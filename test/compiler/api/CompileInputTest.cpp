// What is compiled, and the command that compiles it again.
#include "compiler/api/CompileInput.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

class CompileInput : public ::testing::Test {
protected:
  CompileInput() {
    request.spec = TESSERA_SPECS "/tiny-gpt2";
    request.output = "made";
    request.warning = [this](std::string_view line) {
      warnings.emplace_back(line);
    };
  }
  std::string error() {
    CompileRequest asked = request;
    return std::string(prepareCompile(asked, choice).message());
  }

  CompileRequest request;
  CompileChoice choice;
  std::vector<std::string> warnings;
};

TEST_F(CompileInput, RemembersHowToCompileItAgain) {
  request.set = {"batch.micro=2", "data.train=a folder"};
  request.targets = {"cpu", "cuda:sm_80"};
  request.mesh = "data=2";
  request.world = 2;
  const auto question = prepareCompile(request, choice);
  ASSERT_TRUE(question.ok()) << question.message();
  EXPECT_FALSE(*question);
  EXPECT_EQ(request.rebuildCommand,
            "tessera compile " TESSERA_SPECS "/tiny-gpt2 --set batch.micro=2 "
            "--set 'data.train=a folder' --mesh data=2 --world 2 --target "
            "cpu,cuda:sm_80 -o FILE");
}

// The plan says the mesh.
TEST(RebuildCommand, NamesFilesInsteadOfWhatTheySay) {
  CompileRequest request;
  request.spec = "model";
  request.mesh = "data=2";
  request.recipe = "a recipe.yaml";
  request.targets = {"cpu"};
  CompileChoice choice;
  choice.plan = "plan.yaml";
  choice.devices.cluster = "c.yaml";
  EXPECT_EQ(rebuildCommand(request, choice),
            "tessera compile model --recipe 'a recipe.yaml' --plan plan.yaml "
            "--cluster c.yaml -o FILE");
}

TEST_F(CompileInput, ContinuesFromADump) {
  request.from = "fusion";
  request.spec = "05-fusion.mlir";
  ASSERT_TRUE(prepareCompile(request, choice).ok());
  EXPECT_EQ(request.input, "05-fusion.mlir");
  EXPECT_EQ(request.spec, "");
  EXPECT_EQ(request.rebuildCommand,
            "tessera compile --from fusion 05-fusion.mlir -o FILE");
}

TEST_F(CompileInput, TakesTheEnvironmentsTargetsWithoutOthers) {
  choice.defaultTargets = "cpu:avx2, cuda:sm_80";
  ASSERT_TRUE(prepareCompile(request, choice).ok());
  EXPECT_EQ(request.chosenTargets(),
            (std::vector<std::string>{"cpu:avx2", "cuda:sm_80"}));
  EXPECT_NE(request.rebuildCommand.find(" --target cpu:avx2,cuda:sm_80 "),
            std::string::npos);
  choice.defaultTargets = "avx2";
  EXPECT_EQ(error().find("TESSERA_TARGET in the environment: unknown target "
                         "'avx2'"),
            0U);
  request.targets = {"cpu:avx512"};
  EXPECT_EQ(error(), ""); // the environment is not read
  ASSERT_TRUE(prepareCompile(request, choice).ok());
  EXPECT_EQ(request.chosenTargets(), request.targets);
}

// They are the dump's own.
TEST_F(CompileInput, NamesNoTargetsOfADumpWithKernels) {
  choice.defaultTargets = "cpu:avx2";
  request.from = "kernels";
  request.spec = "08-kernels.mlir";
  ASSERT_TRUE(prepareCompile(request, choice).ok());
  EXPECT_EQ(request.rebuildCommand,
            "tessera compile --from kernels 08-kernels.mlir -o FILE");
}

// On another processor the command makes the same.
TEST_F(CompileInput, ResolvesTheNativeTarget) {
  request.targets = {"cpu:native"};
  EXPECT_EQ(rebuildCommand(request, choice).find("native"), std::string::npos);
  request.targets = {"cpu:native", "cpu"};
  EXPECT_EQ(rebuildCommand(request, choice),
            "tessera compile " TESSERA_SPECS "/tiny-gpt2 -o FILE");
}

TEST_F(CompileInput, AsksForAMeshThatIsToBeChosen) {
  request.mesh = "auto";
  request.world = 4;
  request.set = {"batch.micro=4", "batch.sequence=16"};
  const auto question = prepareCompile(request, choice);
  ASSERT_TRUE(question.ok()) << question.message();
  ASSERT_TRUE(*question);
  EXPECT_EQ((*question)->cluster.gpus(), 4);
}

TEST_F(CompileInput, HasSlotsUnlessTheUserSaysOtherwise) {
  request.infer = true;
  request.set = {"adapter.rank=2"};
  choice.adapters.slots = 3;
  ASSERT_TRUE(prepareCompile(request, choice).ok());
  EXPECT_EQ(request.set.front(), "adapter.kind=lora");
  EXPECT_EQ(request.set.back(), "adapter.rank=2");
}

TEST_F(CompileInput, WarnsOfWhatHasNoEffect) {
  request.set = {"inference.kv=int8"};
  request.infer = true;
  EXPECT_EQ(error(), "");
  EXPECT_TRUE(warnings.empty());
  request.infer = false;
  EXPECT_EQ(error(), "");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("--kv int8 has no effect on training; "), 0U);
}

TEST_F(CompileInput, SaysWhatIsMissing) {
  choice.leavesWeights = true;
  EXPECT_EQ(error(), "--no-weights requires --mode infer and a directory");
  request.output.clear();
  EXPECT_EQ(error(), "compile requires -o FILE");
  request.to = "fusion"; // to stdout
  choice.leavesWeights = false;
  EXPECT_EQ(error(), "");
  request.spec.clear();
  EXPECT_EQ(error(), "compile requires SPEC, a directory with config.json or, "
                     "with --mode infer, a GGUF file");
}

} // namespace
} // namespace tessera
