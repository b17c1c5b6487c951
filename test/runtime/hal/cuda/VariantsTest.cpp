// Kernels with variants: which is taken, and what is launched then.
#include "runtime/hal/Profile.h"
#include "test/runtime/hal/cuda/ProductTest.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr std::uint64_t kElementsOfWide = 256, kElementsOfOff = 512;

/// The product with the variants `product_wide` and, which computes something
/// else, `product_off`; their blocks have more elements.
ArtifactT variantArtifact(const Shape &shape, bool isProduct = true,
                          std::uint64_t repeats = 0) {
  ArtifactT artifact = productArtifact(shape, repeats, /*isOneByOne=*/true);
  DeviceCodeT &code = gpu(artifact);
  KernelT &kernel = *code.kernels.back();
  const std::uint64_t elements = shape.m * shape.n * shape.batches;
  const auto first = static_cast<std::uint32_t>(code.kernels.size());
  const auto add = [&](const char *name, std::uint64_t inBlock) {
    auto variant = std::make_unique<VariantT>();
    variant->kernel =
        static_cast<std::uint32_t>(first + kernel.variants.size());
    variant->blocks = (elements + inBlock - 1) / inBlock;
    kernel.variants.push_back(std::move(variant));
    return name;
  };
  std::vector<KernelT> others;
  for (const char *name : {add("product_wide", kElementsOfWide),
                           add("product_off", kElementsOfOff)}) {
    KernelT other = test::kernel(
        name, {Access::read, Access::read, Access::read_write}, 17);
    other.element_types = kernel.element_types;
    other.gpu = std::make_unique<GpuKernelT>();
    other.gpu->threads = 64;
    others.push_back(std::move(other));
  }
  if (!isProduct) {
    kernel.terms = shape.k;
    kernel.gemm.reset();
  }
  for (KernelT &other : others)
    code.kernels.push_back(std::make_unique<KernelT>(std::move(other)));
  return artifact;
}

/// Of 260 elements: five blocks, or two, or one.
constexpr Shape kShape{"any", 13, 20, 6, 1};

class CudaVariants : public CudaProducts {
protected:
  void SetUp() override {
    CudaProducts::SetUp();
    setting("MICROSECONDS", "1");
    setting("BLOCK_MICROSECONDS", "1");
    times("100:100:100:100");
  }
};

} // namespace

TEST_F(CudaVariants, TheFastestThatComputesTheSameIsTaken) {
  for (const bool isProduct : {false, true})
    for (const std::uint64_t repeats : {0, 3})
      for (const char *mode : {"graph", "stream"}) {
        const std::string where =
            fmt::format("{} {} {}", isProduct, repeats, mode);
        std::filesystem::remove_all(folder);
        const ArtifactT artifact = variantArtifact(kShape, isProduct, repeats);
        Runner itself(artifact, options("generated", mode));
        ASSERT_TRUE(itself.ok()) << itself.message();
        EXPECT_EQ(said(itself), "");
        const auto expected = resultOf(itself, kShape);
        Runner runner(artifact, options("1000", mode));
        ASSERT_TRUE(runner.ok()) << runner.message();
        EXPECT_EQ(said(runner),
                  std::string(isProduct ? "cuBLASLt 13.1.0 computes 0 of 1 "
                                          "products; "
                                        : "") +
                      "1 kernel runs as a variant that is faster here "
                      "(product: variant:1 computes something else)")
            << where;
        EXPECT_EQ(choices(), "product variant:0\n");
        EXPECT_TRUE(resultOf(runner, kShape) == expected) << where;
        EXPECT_EQ(runner->memory().scratch, 0u);
      }
}

TEST_F(CudaVariants, TheKernelItselfOrTheLibraryWhereThoseAreFaster) {
  setting("BLOCK_MICROSECONDS", "0"); // all alike
  Runner itself(variantArtifact(kShape), options());
  EXPECT_EQ(choices(), "product generated\n");
  EXPECT_TRUE(itself.ok()) << itself.message();
  std::filesystem::remove_all(folder);
  setting("BLOCK_MICROSECONDS", "10");
  times("30:2:1:3");
  Runner library(variantArtifact(kShape), options());
  EXPECT_EQ(choices(), "product library:1\n");
  EXPECT_TRUE(
      isLineWith(said(library), "cuBLASLt 13.1.0 computes 1 of 1 products"));
}

TEST_F(CudaVariants, WhatWasTakenIsRemembered) {
  const ArtifactT artifact = variantArtifact(kShape, /*isProduct=*/false);
  ASSERT_TRUE(Runner(artifact, options()).ok());
  setting("BLOCK_MICROSECONDS", "0");
  fake.reset();
  for (const char *tune : {"on", "0"}) {
    Runner again(artifact, options(tune));
    EXPECT_EQ(said(again), "1 kernel runs as a variant that is faster here");
  }
  EXPECT_EQ(fake.calls("cuEventElapsedTime"), 0u);
  for (const char *wrong : {"variant:2", "library:0", "variant:", "product"}) {
    std::ifstream stream(file());
    std::string text(std::istreambuf_iterator<char>(stream), {});
    overwrite(text.substr(0, text.find("product")) + "product " + wrong + "\n");
    Runner runner(artifact, options());
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(choices(), "product generated\n");
  }
}

TEST_F(CudaVariants, NoneWhereNothingIsMeasured) {
  const ArtifactT artifact = variantArtifact(kShape, /*isProduct=*/false);
  for (const char *tune : {"off", "generated", "0"}) {
    std::filesystem::remove_all(folder);
    Runner runner(artifact, options(tune));
    EXPECT_EQ(said(runner), "") << tune;
    EXPECT_EQ(fake.calls("cuEventElapsedTime"), 0u);
    resultOf(runner, kShape);
  }
  EXPECT_EQ(choices(), "product generated\n"); // of "0": it stays so
}

TEST_F(CudaVariants, WithoutALibrary) {
  environment("TESSERA_LIBCUBLASLT", "/nowhere/libcublasLt.so.13");
  Runner runner(variantArtifact(kShape), options());
  EXPECT_TRUE(isLineWith(said(runner),
                         "generated kernels compute all products; "
                         "1 kernel runs as a variant"));
  // Which is none for a kernel that is no product.
  std::filesystem::remove_all(folder);
  Runner other(variantArtifact(kShape, /*isProduct=*/false), options());
  EXPECT_TRUE(said(other).starts_with("1 kernel runs as a variant"));
}

TEST_F(CudaVariants, ProfilesNameTheVariant) {
  hal::SessionOptions profiled = options();
  profiled.recordOptions.profile = true;
  Runner runner(variantArtifact(kShape), profiled);
  ASSERT_TRUE(runner.ok()) << runner.message();
  resultOf(runner, kShape);
  EXPECT_EQ(runner->profiles()[0]->steps()[0].what, "product_wide");
}

TEST_F(CudaVariants, FailuresLeaveTheKernelItself) {
  failEach({"cuMemAlloc_v2", "cuEventRecord", "cuMemcpyDtoHAsync_v2",
            "cuLaunchKernel"},
           12, variantArtifact(kShape), kShape);
}
