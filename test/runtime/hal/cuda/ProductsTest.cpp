// Products of matrices by a library: what it is asked for, how it is chosen,
// and what is remembered.
#include "runtime/hal/Profile.h"
#include "runtime/hal/cuda/LibraryApi.h"
#include "runtime/hal/cuda/Trial.h"
#include "test/runtime/hal/cuda/ProductTest.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr ElementType kF32 = ElementType::f32, kBf16 = ElementType::bf16;

std::vector<Shape> shapes() {
  std::vector<Shape> list;
  for (int i = 0; i < 8; ++i)
    list.push_back(
        {"majorness", 5, 7, 6, 1, bool(i & 1), bool(i & 2), bool(i & 4)});
  for (const auto &[in, out] :
       {std::pair(kF32, kF32), {kBf16, kF32}, {kBf16, kBf16}})
    for (const bool accumulates : {false, true})
      for (const bool byColumns : {false, true})
        list.push_back({"types", 9, 4, 8, 3, byColumns, false, byColumns,
                        accumulates, in, out});
  list.push_back(
      {"no gaps", 8, 16, 32, 1, false, false, false, false, kF32, kF32, 0, 0});
  list.push_back({"one row", 1, 9, 4});
  list.push_back({"one column", 9, 1, 4});
  list.push_back({"one term", 9, 4, 1, 2, true, true});
  list.push_back({"shared", 3, 4, 5, 4, false, false, false, false, kF32, kF32,
                  3, 1, true});
  return list;
}

} // namespace

TEST_F(CudaProducts, TheBitsOfTheGeneratedKernel) {
  for (const Shape &shape : shapes())
    for (const std::uint64_t repeats : {0, 3})
      for (const char *mode : {"graph", "stream"}) {
        const std::string where = fmt::format(
            "{} {}x{}x{} {}{}{} {} times as a {}", shape.label, shape.m,
            shape.n, shape.k, shape.lhsByColumns, shape.rhsByColumns,
            shape.resultByColumns, repeats, mode);
        const ArtifactT artifact = productArtifact(shape, repeats);
        Runner generated(artifact, options("generated", mode));
        ASSERT_TRUE(generated.ok()) << generated.message();
        EXPECT_EQ(said(generated), "");
        const auto expected = resultOf(generated, shape);
        Runner library(artifact, options("1000", mode));
        ASSERT_TRUE(library.ok()) << library.message();
        ASSERT_EQ(said(library), "cuBLASLt 13.1.0 computes 1 of 1 products")
            << where;
        fake.reset();
        EXPECT_TRUE(resultOf(library, shape) == expected) << where;
        EXPECT_EQ(fake.calls("cuLaunchKernel"), 0u);
        EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 0u);
        EXPECT_EQ(fake.misuse(), "") << where;
      }
}

TEST_F(CudaProducts, TheFastestIsChosen) {
  const ArtifactT artifact = productArtifact({"any"});
  for (const auto &[microseconds, choice] : {std::pair("4:2:1:3", "library:1"),
                                             {"1:2:0:3", "library:0"},
                                             {"9:9:9:8", "library:2"},
                                             {"10:11:1:12", "generated"}}) {
    std::filesystem::remove_all(folder);
    times(microseconds);
    Runner runner(artifact, options());
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(choices(), fmt::format("product {}\n", choice));
    const bool isUsed = choice != std::string_view("generated");
    EXPECT_EQ(
        said(runner),
        fmt::format("cuBLASLt 13.1.0 computes {} of 1 products", int(isUsed)));
    EXPECT_EQ(runner->memory().scratch, isUsed ? 4u << 20 : 0u);
  }
}

TEST_F(CudaProducts, WhatWasChosenIsRemembered) {
  const ArtifactT artifact = productArtifact({"any"});
  ASSERT_TRUE(Runner(artifact, options()).ok());
  times("10:10:10:10");
  const auto timings = [&](const std::string &tune) {
    fake.reset();
    Runner runner(artifact, options(tune));
    EXPECT_TRUE(runner.ok()) << runner.message();
    return std::pair(fake.calls("cuEventElapsedTime"), said(runner));
  };
  const std::string used = "cuBLASLt 13.1.0 computes 1 of 1 products",
                    unused = "cuBLASLt 13.1.0 computes 0 of 1 products";
  EXPECT_EQ(timings("on"), std::pair(0u, used));
  EXPECT_EQ(timings("0"), std::pair(0u, used)); // without a budget too
  // Another GPU or another driver is another file.
  setting("VERSION", "12090");
  EXPECT_EQ(timings("0"), std::pair(0u, unused));
  // What the budget did not reach stays as it was: the same bits.
  EXPECT_EQ(timings("1000"), std::pair(0u, unused));
  setting("VERSION", "13000");
  EXPECT_EQ(timings("1000"), std::pair(0u, used));
}

TEST_F(CudaProducts, FilesThatAreNotOurs) {
  const ArtifactT artifact = productArtifact({"any"});
  ASSERT_TRUE(Runner(artifact, options()).ok());
  std::ifstream stream(file());
  const std::string whole(std::istreambuf_iterator<char>(stream), {});
  const std::string start = whole.substr(0, whole.find("product"));
  times("1:2:1:3"); // so that a new choice shows
  for (const std::string &text :
       {std::string(), std::string("\0\xff\n", 3), whole.substr(0, 30), start,
        whole.substr(0, whole.size() - 1), start + "product\n",
        start + "product library:1 more\n", start + "product library:3\n",
        start + "product library:18446744073709551617\n",
        start + "product rm\n", "tessera tuning 2" + whole.substr(16),
        start + "product library:1\n" + std::string(2 << 20, '\n')}) {
    overwrite(text);
    Runner runner(artifact, options());
    ASSERT_TRUE(runner.ok()) << runner.message();
    EXPECT_EQ(choices(), "product library:0\n") << text.substr(0, 200);
  }
}

TEST_F(CudaProducts, NoPlaceToRememberIn) {
  const ArtifactT artifact = productArtifact({"any"});
  std::ofstream(folder) << "a file";
  Runner runner(artifact, options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_TRUE(
      isLineWith(said(runner), "computes 1 of 1 products (tuning: " +
                                   (folder / "tessera" / "tuning").string()));
  EXPECT_TRUE(isLineWith(said(runner), "timed again at every start)"));
}

TEST_F(CudaProducts, ByTheirSizeWhereNothingIsTimed) {
  const ArtifactT small = productArtifact({"small"});
  Runner runner(small, options("off"));
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(said(runner), "cuBLASLt 13.1.0 computes 0 of 1 products");
  EXPECT_EQ(fake.calls("cuEventElapsedTime"), 0u);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(CudaProducts, TheEnvironmentChooses) {
  const ArtifactT artifact = productArtifact({"any"});
  environment("TESSERA_TUNE", "generated");
  Runner runner(artifact, options(""));
  EXPECT_EQ(said(runner), "");
  for (const char *wrong : {"fast", "-1", "nan", "1s", " 1"}) {
    environment("TESSERA_TUNE", wrong);
    EXPECT_EQ(Runner(artifact, options("")).message(),
              fmt::format("TESSERA_TUNE is '{}': use on, off, generated or a "
                          "number of seconds",
                          wrong));
  }
}

TEST_F(CudaProducts, WhatComputesSomethingElseIsLeftOut) {
  // The second way, which is the fastest.
  environment("TESSERA_FAKE_CUBLASLT_WRONG", "2");
  Runner runner(productArtifact({"any"}), options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(choices(), "product library:2\n"); // the fake's fourth
  EXPECT_EQ(said(runner), "cuBLASLt 13.1.0 computes 1 of 1 products (product: "
                          "library:1 computes something else)");
}

TEST_F(CudaProducts, Agreement) {
  using hal::cuda::agree;
  const auto of = [](float a, float b, ElementType type) {
    return agree({{type, {a}}}, {{type, {b}}}, 64);
  };
  EXPECT_TRUE(of(3, 3, kF32));
  EXPECT_TRUE(of(3, 3 + 0x1p-18f, kF32));
  EXPECT_FALSE(of(3, 3 + 0x1p-13f, kF32));
  EXPECT_TRUE(of(3, 3 + 0x1p-7f, kBf16));
  EXPECT_FALSE(of(3, 3 + 0x1p-4f, kBf16));
  EXPECT_FALSE(of(3, NAN, kF32));
  EXPECT_FALSE(of(NAN, NAN, kF32));
  EXPECT_FALSE(agree({{kF32, {1}}}, {{kF32, {}}}, 1));
  EXPECT_FALSE(agree({{kF32, {1}}}, {}, 1));
  EXPECT_TRUE(
      agree({{kF32, {1}}, {kBf16, {2}}}, {{kF32, {1}}, {kBf16, {2}}}, 1));
  EXPECT_FALSE(
      agree({{kF32, {1}}, {kBf16, {2}}}, {{kF32, {1}}, {kBf16, {3}}}, 1));
}

TEST_F(CudaProducts, ProductsThatTheLibraryHasNot) {
  Shape shape{"batches on each other", 3, 4, 5, 2};
  ArtifactT artifact = productArtifact(shape);
  gpu(artifact).kernels.back()->gemm->result->batch = 1;
  Runner runner(artifact, options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_EQ(said(runner), "cuBLASLt 13.1.0 computes 0 of 1 products");
  EXPECT_EQ(fake.calls("cublasLtMatmulDescCreate"), 0u);
  artifact = productArtifact({"rows on each other"});
  gpu(artifact).kernels.back()->gemm->lhs->major = 2;
  EXPECT_EQ(Runner(artifact, options()).message(), "");
  EXPECT_EQ(fake.calls("cublasLtMatmulDescCreate"), 0u);
}

TEST_F(CudaProducts, NoLibrary) {
  environment("TESSERA_LIBCUBLASLT", "/nowhere/libcublasLt.so.13");
  const Shape shape{"any"};
  Runner runner(productArtifact(shape), options());
  ASSERT_TRUE(runner.ok()) << runner.message();
  EXPECT_TRUE(
      isLineWith(said(runner), "no cuBLASLt (/nowhere/libcublasLt.so.13: "));
  EXPECT_TRUE(isLineWith(said(runner), "generated kernels compute all "
                                       "products"));
  resultOf(runner, shape);
  environment("TESSERA_LIBCUBLASLT", TESSERA_TEST_KERNELS);
  Runner other(productArtifact(shape), options());
  EXPECT_EQ(said(other),
            "no cuBLASLt (" TESSERA_TEST_KERNELS
            " has no function cublasLtGetVersion): generated kernels compute "
            "all products");
}

TEST_F(CudaProducts, ProfilesSayWhoComputes) {
  hal::SessionOptions profiled = options();
  profiled.recordOptions.profile = true;
  const Shape shape{"any"};
  Runner runner(productArtifact(shape), profiled);
  ASSERT_TRUE(runner.ok()) << runner.message();
  resultOf(runner, shape);
  EXPECT_EQ(runner->profiles()[0]->steps()[0].what, "product by cuBLASLt");
}

TEST_F(CudaProducts, EachCallFailsInALineAndLeavesNothingBehind) {
  const Shape shape{"any", 5, 7, 6, 2};
  const ArtifactT artifact = productArtifact(shape);
  Runner whole(artifact, options("generated"));
  const auto expected = resultOf(whole, shape);
  unsigned cases = 0;
  const auto failEach = [&](const std::string &function) {
    std::filesystem::remove_all(folder);
    fake.reset();
    setting("FAIL", "");
    ASSERT_TRUE(Runner(artifact, options()).ok());
    const unsigned calls = fake.calls(function.c_str());
    EXPECT_GT(calls, 0u) << function;
    for (unsigned call = 1; call <= calls; ++call, ++cases) {
      const std::string where = fmt::format("call {} of {}", call, function);
      std::filesystem::remove_all(folder);
      fake.reset();
      setting("FAIL", fmt::format("{}:{}:14", function, call));
      Runner runner(artifact, options());
      if (!runner.ok()) { // while it is captured
        EXPECT_EQ(runner.message(),
                  "program 'main': step 0 (h.0.mlp): kernel 'product by "
                  "cuBLASLt': cublasLtMatmul: fake status (14)")
            << where;
        continue;
      }
      if (function.find("Destroy") == function.npos)
        EXPECT_TRUE(isLineWith(said(runner), function + ": fake status (14)"))
            << where;
      EXPECT_TRUE(resultOf(runner, shape) == expected) << where;
    }
    EXPECT_EQ(fake.misuse(), "") << function;
  };
#define NAME(member, symbol, parameters) failEach(#symbol);
  TESSERA_CUBLASLT_FUNCTIONS(NAME)
#undef NAME
  EXPECT_GE(cases, 30u);
}

TEST_F(CudaProducts, FailuresOfTheDriverLeaveTheGeneratedKernel) {
  const Shape shape{"any"};
  failEach({"cuMemAlloc_v2", "cuEventCreate", "cuEventRecord",
            "cuEventElapsedTime", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel"},
           8, productArtifact(shape), shape);
}
