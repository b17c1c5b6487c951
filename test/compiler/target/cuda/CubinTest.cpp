// What ptxas says is read, and what must not ship is refused.
#include "compiler/target/cuda/Cubin.h"
#include <cstdlib>
#include <gtest/gtest.h>

using namespace tessera::cuda;

// As ptxas 13 prints it.
static const char kLog[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'row' for 'sm_80'\n"
    "ptxas info    : Function properties for row\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 22 registers, used 1 barriers, 400 bytes cmem[0]\n"
    "ptxas info    : Compiling entry function 'wide' for 'sm_80'\n"
    "ptxas info    : Function properties for wide\n"
    "    64 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 1 barriers, 2048 bytes smem, 400 "
    "bytes cmem[0]\n";

TEST(Cubin, FindsTheCompilerThatIsNamed) {
  setenv("CUDACXX", "sh", 1);
  EXPECT_TRUE(llvm::StringRef(findNvcc()).ends_with("/sh"));
  setenv("CUDACXX", "/bin/sh", 1);
  EXPECT_EQ(findNvcc(), "/bin/sh");
  setenv("CUDACXX", "no-such-compiler", 1);
  EXPECT_EQ(findNvcc(), "no-such-compiler");
  setenv("CUDACXX", "", 1); // as if there were none
  EXPECT_EQ(findNvcc(), "");
  unsetenv("CUDACXX");
}

TEST(Cubin, ReadsResources) {
  std::vector<KernelResources> kernels = readResources(kLog);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "row");
  EXPECT_EQ(kernels[0].registers, 22);
  EXPECT_EQ(kernels[0].spillBytes, 0);
  EXPECT_EQ(kernels[1].name, "wide");
  EXPECT_EQ(kernels[1].registers, 255);
  EXPECT_EQ(kernels[1].sharedBytes, 2048);
  EXPECT_EQ(kernels[1].stackBytes, 64);
  EXPECT_EQ(kernels[1].spillBytes, 52);
}

TEST(Cubin, RefusesSpillsAndSerialization) {
  Cubin cubin{"", "", readResources(kLog)};
  EXPECT_EQ(findGateFailure(cubin, kLog),
            "kernel wide spills 52 bytes of registers");
  cubin.kernels.pop_back();
  EXPECT_EQ(findGateFailure(cubin, kLog), "");
  EXPECT_NE(findGateFailure(cubin, "ptxas info : (C7510) Potential Performance "
                                   "Loss: wgmma.mma_async instructions are "
                                   "serialized")
                .find("ptxas serializes"),
            std::string::npos);
  EXPECT_NE(findGateFailure(cubin, "ptxas info : (C7508) Potential Performance "
                                   "Loss: 'setmaxnreg' ignored")
                .find("ptxas ignores setmaxnreg"),
            std::string::npos);
}

// The device library's tensor-core functions, each of which is one instruction.
TEST(Cubin, CountsTensorInstructions) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  auto cubin = compileCubin(R"(
#include "runtime/device/Device.cuh"
namespace tessera::device {
TESSERA_KERNEL(product, 32, 2, 0) {
  const auto &instance = launch.instance();
  unsigned char *tile = sharedMemory() + kScratchBytes;
  copyAsync(tile + 16 * swizzle<32>(lane() / 2, lane() % 2),
            instance.buffer<const bf16>(0) + 8 * lane());
  commitCopies();
  waitCopies<0>();
  sync();
  FragmentC c = {};
  FragmentA a;
  uint32_t b[4];
  loadMatrices(a.at, tile + 16 * swizzle<32>(lane() % 16, lane() / 16));
  loadMatrices<true>(b, tile + 16 * swizzle<32>(lane() % 16, lane() / 16));
  multiplyBf16(c.at, a, {{b[0], b[1]}});
  multiplyF16(c.at, a, {{b[2], b[3]}});
  multiplyTf32(c.at, a, {{b[2], toTf32(1.5f)}});
  instance.buffer<float>(1)[lane()] = c.at[0] + c.at[1] + c.at[2] + c.at[3];
}
} // namespace tessera::device
)",
                            "sm_80");
  ASSERT_TRUE(bool(cubin)) << llvm::toString(cubin.takeError());
  ASSERT_EQ(cubin->kernels.size(), 1u);
  EXPECT_EQ(cubin->kernels[0].hmma, 3);
  EXPECT_EQ(cubin->kernels[0].hgmma, 0);
}

// The PTX of a kernel that converts a row of 512 elements.
static std::string convertRow(const std::string &load,
                              const std::string &store) {
  auto cubin =
      compileCubin(R"(
#include "runtime/device/Device.cuh"
namespace tessera::device {
TESSERA_KERNEL(row, 128, 2, 0) {
  const auto &instance = launch.first;
  using Row = Micropanel<512, 128>;
  const int64_t first = blockNumber() * 512;
  const auto x = )" + load +
                       R"(<Row>(instance.buffer<const bf16>(0) + first);
  )" + store + R"((map<Row>([](bf16 x0) { return toFloat(x0); }, x),
                       instance.buffer<float>(1) + first);
}
} // namespace tessera::device
)",
                   "sm_80");
  if (cubin)
    return cubin->ptx;
  ADD_FAILURE() << llvm::toString(cubin.takeError());
  return "";
}

// One load and one store, and no path for single elements.
TEST(Cubin, AlignedRowsAreAccessedWithoutBranches) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  const std::string aligned = convertRow("loadAligned", "storeAligned");
  llvm::StringRef ptx = aligned;
  EXPECT_EQ(ptx.count("ld.global"), 1u) << aligned;
  EXPECT_EQ(ptx.count("st.global"), 1u) << aligned;
  EXPECT_EQ(ptx.count("bra"), 0u) << aligned;
  EXPECT_GT(llvm::StringRef(convertRow("load", "store")).count("bra"), 0u);
}

// Neither by nvcc nor by the driver, which may fuse what has no rounding.
TEST(Cubin, MultiplyAddsAreFusedOnlyByName) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  auto cubin = compileCubin(R"(
extern "C" __global__ void f(float *x, float y, float z) {
  x[0] = x[0] * y + z;
}
)",
                            "sm_80");
  ASSERT_TRUE(bool(cubin)) << llvm::toString(cubin.takeError());
  EXPECT_TRUE(llvm::StringRef(cubin->ptx).contains("mul.rn.f32"));
  EXPECT_TRUE(llvm::StringRef(cubin->ptx).contains("add.rn.f32"));
  EXPECT_FALSE(llvm::StringRef(cubin->ptx).contains("fma"));
}

TEST(Cubin, AnErrorShowsTheLineOfText) {
  if (findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  auto cubin =
      compileCubin("__global__ void f() {\n  undefined = 1;\n}\n", "sm_80");
  ASSERT_FALSE(bool(cubin));
  std::string message = llvm::toString(cubin.takeError());
  EXPECT_NE(message.find("undefined = 1;"), std::string::npos) << message;
}
