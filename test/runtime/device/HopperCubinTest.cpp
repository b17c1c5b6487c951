// The kernels that the emulated GPU runs here, compiled for sm_90a:
// compileCubin refuses spills and serialized wgmma; the rest is counted.
#include "compiler/target/cuda/Cubin.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>

using namespace tessera::cuda;

static std::vector<KernelResources> compile(const std::string &file) {
  auto text = llvm::MemoryBuffer::getFile(TESSERA_TEST_FOLDER "/" + file);
  EXPECT_TRUE(bool(text)) << file;
  if (!text)
    return {};
  auto cubin = compileCubin((*text)->getBuffer(), "sm_90a");
  EXPECT_TRUE(bool(cubin)) << llvm::toString(cubin.takeError());
  return cubin ? cubin->kernels : std::vector<KernelResources>();
}

TEST(HopperCubin, EveryKindOfWgmmaIsFourInstructions) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  std::vector<KernelResources> kernels = compile("WgmmaKernels.cuh");
  EXPECT_EQ(kernels.size(), 38u);
  for (const KernelResources &kernel : kernels) {
    EXPECT_EQ(kernel.hgmma, 4) << kernel.name;
    EXPECT_EQ(kernel.hmma, 0) << kernel.name;
  }
}

// 168 registers: a multiprocessor's 65536 among 384 threads.
TEST(HopperCubin, WarpsWithRolesDivideAllRegisters) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  std::vector<KernelResources> kernels = compile("HopperKernels.cuh");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].registers, 168);
  EXPECT_GE(kernels[0].hgmma, 4);
  EXPECT_EQ(kernels[0].hgmma % 4, 0);
}

// Four for each of the scores and the output: of the first tile, in the loop,
// and behind it.
TEST(HopperCubin, ProductsInChainsStayAsynchronous) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  std::vector<KernelResources> kernels = compile("ChainedKernels.cuh");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].registers, 168);
  EXPECT_EQ(kernels[0].hgmma, 16);
}
