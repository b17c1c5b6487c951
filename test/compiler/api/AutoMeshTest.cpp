#include "compiler/api/AutoMesh.h"

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
  Status status = resolveMesh(request, devices);
  return status.ok() ? "" : std::string(status.message());
}

TEST(AutoMesh, ChoosesAxesForAllDevices) {
  CompileRequest request = requestFor(4);
  Status status = resolveMesh(request, {});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(request.mesh, "auto");
  EXPECT_NE(request.mesh.find('4'), std::string::npos) << request.mesh;
}

TEST(AutoMesh, LeavesANamedMeshAlone) {
  CompileRequest request = requestFor(0);
  request.mesh = "data=2";
  EXPECT_TRUE(resolveMesh(request, {}).ok());
  EXPECT_EQ(request.mesh, "data=2");
  EXPECT_EQ(errorOf(request, {.cluster = {}, .memory = "24GiB"}),
            "--cluster and --device-memory require --mesh auto");
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

// No mesh fits: an error, not a choice.
TEST(AutoMesh, RefusesDevicesThatAreTooSmall) {
  EXPECT_NE(errorOf(requestFor(4), {.cluster = {}, .memory = "1MiB"}), "");
}

} // namespace
} // namespace tessera
