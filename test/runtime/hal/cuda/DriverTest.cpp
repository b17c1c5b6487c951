// Finding the driver and a GPU: what can be missing, and what is said then.
#include "test/runtime/hal/cuda/CudaTest.h"

using namespace tessera;
using namespace tessera::test;

namespace {

class CudaDriver : public CudaTest {
protected:
  static std::string createError(const std::string &name) {
    return hal::createDevice(name, {}).message();
  }
};

} // namespace

TEST_F(CudaDriver, DescribesItsGpu) {
  setting("GPUS", "2");
  setting("CAPABILITY", "90");
  setting("VERSION", "12040");
  const auto device = hal::createDevice("cuda:1", {});
  ASSERT_TRUE(device.ok()) << device.message();
  EXPECT_EQ((*device)->name(), "cuda:1");
  EXPECT_EQ((*device)->describe(),
            "cuda:1: Fake GPU, compute capability 9.0, 108 multiprocessors, "
            "1.00 GiB, driver for CUDA 12.4");
  const auto first = hal::createDevice("cuda", {});
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ((*first)->name(), "cuda:0");
}

TEST_F(CudaDriver, NoLibrary) {
  environment("TESSERA_LIBCUDA", "/nowhere/libcuda.so.1");
  const std::string error = createError("cuda:0");
  EXPECT_EQ(error.find("cannot load the CUDA driver: /nowhere/libcuda.so.1: "),
            0u)
      << error;
  EXPECT_TRUE(isLineWith(error, "; it comes with NVIDIA's driver for the GPU: "
                                "install that, name its library in "
                                "TESSERA_LIBCUDA, or use another device"));
}

TEST_F(CudaDriver, LibraryOfSomethingElse) {
  environment("TESSERA_LIBCUDA", TESSERA_TEST_KERNELS);
  EXPECT_EQ(createError("cuda:0"),
            "the CUDA driver's library " TESSERA_TEST_KERNELS
            " has no function cuGetErrorName: update NVIDIA's driver");
}

TEST_F(CudaDriver, TooOld) {
  setting("VERSION", "11080");
  EXPECT_EQ(createError("cuda:0"),
            "the driver " TESSERA_FAKE_CUDA
            " is for CUDA 11.8, but CUDA 12.0 or later is needed: update "
            "NVIDIA's driver");
}

TEST_F(CudaDriver, NoGpu) {
  setting("GPUS", "0");
  EXPECT_EQ(createError("cuda:0"),
            "the CUDA driver finds no GPU (fake result 100 "
            "(CUDA_ERROR_100)): check nvidia-smi and CUDA_VISIBLE_DEVICES, or "
            "use another device");
}

TEST_F(CudaDriver, LibraryThatFitsNoModule) {
  setting("FAIL", "cuInit:1:803");
  EXPECT_TRUE(isLineWith(createError("cuda:0"),
                         "does not match the loaded kernel module"));
  fake.reset();
  setting("FAIL", "cuInit:1:34");
  EXPECT_TRUE(isLineWith(createError("cuda:0"), "is the toolkit's stub"));
  fake.reset();
  setting("FAIL", "cuInit:1:999");
  EXPECT_EQ(
      createError("cuda:0"),
      "cannot start the CUDA driver: cuInit: fake result 999 (CUDA_ERROR_999)");
}

TEST_F(CudaDriver, NoSuchDevice) {
  EXPECT_EQ(createError("cuda:1"),
            "cuda:1: no such device: there is 1 GPU, cuda:0");
  setting("GPUS", "4");
  EXPECT_EQ(createError("cuda:7"),
            "cuda:7: no such device: there are 4 GPUs, cuda:0 to cuda:3");
  for (const char *wrong : {"x", "-1", "1x", " 1", "99999999999"})
    EXPECT_EQ(createError(std::string("cuda:") + wrong),
              "unknown device 'cuda:" + std::string(wrong) +
                  "': a GPU has a number, as cuda:0");
}

TEST_F(CudaDriver, UnknownMode) {
  environment("TESSERA_CUDA", "fast");
  EXPECT_EQ(createError("cuda:0"),
            "TESSERA_CUDA is 'fast': use graph, stream or step");
  environment("TESSERA_CUDA", "step");
  EXPECT_EQ(createError("cuda:0"), "");
}
