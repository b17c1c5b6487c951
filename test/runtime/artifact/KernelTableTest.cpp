#include "runtime/artifact/KernelTable.h"
#include "test/runtime/artifact/TestArtifact.h"

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::test;

namespace {

/// The small artifact with figures: 4 launches of add_row in a loop, whose
/// sizes are dynamic, and one of update.
ArtifactT measured() {
  ArtifactT artifact = smallArtifact();
  KernelT &update = *share(artifact).devices[1]->kernels[1];
  update.flops = 312'000'000;
  update.bytes = 2'039;
  update.summary = "einsum, add";
  update.element_types = {ElementType::bf16, ElementType::f32};
  update.gpu->hmma = 64;
  update.gpu->registers = 96;
  update.gpu->static_shared_bytes = 16;
  share(artifact).devices[1]->kernels[0]->gpu->registers = 0;
  return artifact;
}

class KernelTable : public testing::Test {
protected:
  const Program &program(int device) const {
    return *root().shares()->Get(0)->devices()->Get(device)->programs()->Get(0);
  }
  const DeviceCode &code(int device) const {
    return *root().shares()->Get(0)->devices()->Get(device);
  }
  void pack(const ArtifactT &artifact) {
    bytes = std::make_unique<AlignedBytes>(test::pack(artifact));
  }
  const Artifact &root() const { return *GetArtifact(bytes->span().data()); }

private:
  std::unique_ptr<AlignedBytes> bytes;
};

} // namespace

TEST_F(KernelTable, CountsLaunchesBytesAndBounds) {
  pack(measured());
  const auto rows = kernelRows(code(1), program(1));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kernel->name()->str(), "add_row");
  EXPECT_EQ(rows[0].launches, 4u);
  EXPECT_EQ(rows[0].flops, 0);
  EXPECT_EQ(rows[0].bytes, 64 + 2 * 64); // one argument is read and written
  EXPECT_EQ(rows[1].launches, 1u);
  EXPECT_EQ(rows[1].bytes, 2039);
  EXPECT_DOUBLE_EQ(rows[1].boundMicroseconds, 1); // tensor cores on bf16
}

TEST_F(KernelTable, PeaksFollowFromInstructionsAndTypes) {
  const auto bound = [&](const ArtifactT &artifact) {
    pack(artifact);
    return kernelRows(code(1), program(1))[1].boundMicroseconds;
  };
  ArtifactT artifact = measured();
  GpuKernelT &gpu = *share(artifact).devices[1]->kernels[1]->gpu;
  std::swap(gpu.hmma, gpu.hgmma);
  EXPECT_DOUBLE_EQ(bound(artifact), 1);
  share(artifact).devices[1]->kernels[1]->element_types[0] = ElementType::f32;
  EXPECT_DOUBLE_EQ(bound(artifact), 2);
  gpu.hgmma = 0;
  EXPECT_DOUBLE_EQ(bound(artifact), 16);
  share(artifact).devices[1]->kernels[1]->bytes = 203'900'000;
  EXPECT_DOUBLE_EQ(bound(artifact), 100);
}

TEST_F(KernelTable, ReadsAsATable) {
  pack(measured());
  EXPECT_EQ(
      kernelTable(code(1), program(1)),
      "train_step on cuda:sm_80: 5 launches of 2 kernels, 312 MFLOP, 2.81 kB; "
      "at best 1 us on an A100\n"
      " runs   FLOPs   bytes  A100 us threads regs shared spill   mma  kernel: "
      "what was fused\n"
      "    4       -     192     0.00     128    -   1024     -     -  "
      "add_row: "
      "\n"
      "    1   312 M  2.04 k     1.00     128   96   1040     0    64  update: "
      "einsum, add\n");
  EXPECT_EQ(kernelTable(code(0), program(0)),
            "train_step on cpu: 5 launches of 2 kernels, 768B\n"
            " runs   FLOPs   bytes  kernel: what was fused\n"
            "    4       -     192  add_row: \n"
            "    1       -       -  update: \n");
}

TEST_F(KernelTable, VariantsStandUnderTheirKernel) {
  ArtifactT artifact = measured();
  auto &kernels = share(artifact).devices[1]->kernels;
  kernels.push_back(std::make_unique<KernelT>(*kernels[1]));
  kernels[2]->name = "update_other";
  kernels[2]->gpu->registers = 80;
  kernels[1]->variants.push_back(std::make_unique<VariantT>());
  kernels[1]->variants[0]->kernel = 2;
  kernels[1]->variants[0]->blocks = 1;
  pack(artifact);
  const std::string table = kernelTable(code(1), program(1));
  EXPECT_TRUE(table.ends_with(
      "    1   312 M  2.04 k     1.00     128   96   1040     0    64  update: "
      "einsum, add\n"
      "   or   312 M  2.04 k     1.00     128   80   1040     0    64  "
      "update_other: a variant of it\n"))
      << table;
}

TEST_F(KernelTable, FindsKernels) {
  pack(measured());
  EXPECT_EQ(findKernel(code(0), "update"), code(0).kernels()->Get(1));
  EXPECT_EQ(findKernel(code(0), "updat"), nullptr);
}
