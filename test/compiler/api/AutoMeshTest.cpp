#include "compiler/api/AutoMesh.h"
#include "compiler/api/ProgramMemory.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

CompileRequest requestFor(int64_t world) {
  CompileRequest request;
  request.spec = TESSERA_SPECS "/tiny-gpt2";
  request.set = {"batch.micro=4", "batch.sequence=16"};
  request.mesh = "auto";
  request.world = world;
  return request;
}

std::string errorOf(CompileRequest request, const MeshDevices &devices = {}) {
  auto question = meshQuestion(request, devices);
  return question.ok() ? "" : std::string(question.message());
}

/// Compiles up to the execution plan, which tells whether the mesh fits.
std::string compileError(CompileRequest &request, const MeshDevices &devices) {
  auto question = meshQuestion(request, devices);
  if (!question.ok() || !*question)
    return "no question";
  request.onlyPlan = true;
  auto summary = compileOnAutoMesh(request, **question,
                                   [](const CompileRequest &) { return ""; });
  return summary ? "" : llvm::toString(summary.takeError());
}

TEST(AutoMesh, ChoosesAxesForAllDevices) {
  CompileRequest request = requestFor(4);
  EXPECT_EQ(compileError(request, {}), "");
  EXPECT_NE(request.mesh, "auto");
  EXPECT_NE(request.mesh.find('4'), std::string::npos) << request.mesh;
}

TEST(AutoMesh, LeavesANamedMeshAlone) {
  CompileRequest request = requestFor(0);
  request.mesh = "data=2";
  auto question = meshQuestion(request, {});
  EXPECT_TRUE(question.ok() && !*question);
  EXPECT_EQ(errorOf(request, {.cluster = {}, .memory = "24GiB"}),
            "--device-memory requires --mesh auto");
}

TEST(AutoMesh, SaysWhatItRequires) {
  EXPECT_NE(errorOf(requestFor(0)).find("--world 8"), std::string::npos);
  CompileRequest infers = requestFor(4);
  infers.infer = true;
  EXPECT_NE(errorOf(infers).find("only for training"), std::string::npos);
  EXPECT_NE(errorOf(requestFor(4), {.cluster = {}, .memory = "much"})
                .find("--device-memory: "),
            std::string::npos);
  CompileRequest onGpus = requestFor(4);
  onGpus.targets = {"cuda:sm_90a"};
  EXPECT_NE(errorOf(onGpus).find("requires --cluster FILE"), std::string::npos);
}

// The chosen mesh fits by its program; less memory than the least program needs
// is an error that names it.
TEST(AutoMesh, ProvesThatItFits) {
  std::string error;
  double memory = 100e6; // of which libraries are 64
  for (; error.empty() && memory > 60e6; memory *= 0.92) {
    CompileRequest request = requestFor(4);
    const std::string bytes = std::to_string(int64_t(memory)) + "B";
    error = compileError(request, {.cluster = {}, .memory = bytes});
    if (!error.empty())
      break;
    auto program = programMemory(request);
    ASSERT_TRUE(program.ok()) << program.message();
    EXPECT_LE(double(program->total()) + planner::hostLibraryBytes,
              0.97 * memory);
  }
  EXPECT_EQ(error.find("--world 4: no mesh fits: of "), 0U) << error;
  EXPECT_NE(error.find(" whose programs were compiled, mesh "),
            std::string::npos)
      << error;
}

} // namespace
} // namespace tessera
