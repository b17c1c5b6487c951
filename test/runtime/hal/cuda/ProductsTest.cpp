// Products of matrices by a library: what it is asked for, how it is chosen,
// and what is remembered.
#include "runtime/hal/Profile.h"
#include "runtime/hal/cuda/LibraryApi.h"
#include "runtime/hal/cuda/Trial.h"
#include "runtime/support/Floats.h"
#include "test/runtime/hal/cuda/CudaTest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace tessera;
using namespace tessera::test;

namespace {

/// A product and how its matrices lie: with rows without gaps, or columns.
struct Shape {
  const char *label;
  std::uint64_t m = 5, n = 7, k = 6, batches = 1;
  bool lhsByColumns = false, rhsByColumns = false, resultByColumns = false;
  bool accumulates = false;
  ElementType in = ElementType::f32, out = ElementType::f32;
  std::uint64_t gap = 3, offset = 1; ///< between rows or columns; in elements
  bool sharesRhs = false;            ///< by all batches
};

GemmOperandT operandOf(const Shape &shape, std::uint32_t buffer,
                       std::uint64_t rows, std::uint64_t columns,
                       bool byColumns) {
  GemmOperandT operand;
  operand.buffer = buffer;
  operand.offset = shape.offset;
  operand.major = byColumns ? 1 : columns + shape.gap;
  operand.minor = byColumns ? rows + shape.gap : 1;
  operand.batch = shape.batches == 1 ? 0 : (rows + 3) * (columns + 3) + 5;
  return operand;
}

/// Elements that an operand's argument has.
std::uint64_t extentOf(const GemmOperandT &operand, std::uint64_t rows,
                       std::uint64_t columns, std::uint64_t batches) {
  return operand.offset + (rows - 1) * operand.major +
         (columns - 1) * operand.minor + (batches - 1) * operand.batch + 1;
}

/// One kernel that is that product, its result the state "w"; its operands the
/// inputs "lhs" and "rhs". `repeats` runs of two instances in a loop, each
/// a little further on.
ArtifactT productArtifact(const Shape &shape, std::uint64_t repeats = 0) {
  auto gemm = std::make_unique<GemmT>();
  gemm->m = shape.m, gemm->n = shape.n, gemm->k = shape.k;
  gemm->batches = shape.batches;
  gemm->accumulates = shape.accumulates;
  const auto make = [&](auto... values) {
    return std::make_unique<GemmOperandT>(operandOf(shape, values...));
  };
  gemm->lhs = make(0, shape.m, shape.k, shape.lhsByColumns);
  gemm->rhs = make(1, shape.n, shape.k, shape.rhsByColumns);
  gemm->result = make(2, shape.m, shape.n, shape.resultByColumns);
  if (shape.sharesRhs)
    gemm->rhs->batch = 0;
  const bool isWide = shape.in != shape.out;
  KernelT kernel =
      test::kernel(shape.in == ElementType::f32 ? "product"
                   : isWide                     ? "product_bf16_f32"
                                                : "product_bf16",
                   {Access::read, Access::read, Access::read_write}, 17);
  kernel.element_types = {shape.in, shape.in, shape.out};
  kernel.gpu = std::make_unique<GpuKernelT>();
  kernel.gpu->threads = 64;

  const std::uint64_t in = elementBytes(shape.in),
                      out = elementBytes(shape.out);
  const std::uint64_t bytes[] = {
      in * extentOf(*gemm->lhs, shape.m, shape.k, shape.batches),
      in * extentOf(*gemm->rhs, shape.n, shape.k, shape.batches),
      out * extentOf(*gemm->result, shape.m, shape.n, shape.batches)};
  const std::uint64_t slack = 64 * (repeats + 1), slot = 4096;
  std::vector<std::int64_t> sizes;
  for (const std::uint64_t size : {gemm->m, gemm->n, gemm->k, gemm->batches})
    sizes.push_back(std::int64_t(size));
  for (const GemmOperandT *operand :
       {gemm->lhs.get(), gemm->rhs.get(), gemm->result.get()})
    for (const std::uint64_t number :
         {operand->offset, operand->major, operand->minor, operand->batch})
      sizes.push_back(std::int64_t(number));
  sizes.push_back(shape.accumulates);
  kernel.gemm = std::move(gemm);

  const auto one = [&](std::uint64_t shift) {
    const auto moves = [&](std::uint64_t by) {
      return repeats ? std::vector{by} : std::vector<std::uint64_t>();
    };
    return instance({arg(Space::io, 64 * shift, bytes[0], moves(64)),
                     arg(Space::io, slot, bytes[1], moves(0)),
                     arg(Space::state, slot * shift, bytes[2], moves(64))},
                    blocksOf(std::int64_t(shape.m * shape.n * shape.batches)),
                    sizes);
  };
  const auto programOf = [&](std::vector<NodeT> steps) {
    return program(
        "main", 0, 2 * slot,
        {tensor("lhs", ElementType::u8, {slot}, Role::input, Space::io, 0),
         tensor("rhs", ElementType::u8, {slot}, Role::input, Space::io, slot)},
        {}, std::move(steps));
  };
  ArtifactT artifact = withCuda(oneProgram(programOf({}), 2 * slot));
  artifact.state = owned<TensorT>({tensor("w", ElementType::u8, {2 * slot},
                                          Role::parameter, Space::state, 0)});
  EXPECT_LE(std::max({bytes[0], bytes[1], bytes[2]}) + slack, slot);
  const auto number = static_cast<std::uint32_t>(gpu(artifact).kernels.size());
  std::vector<NodeT> steps;
  if (repeats)
    steps.push_back(loop(repeats, {launch(number, {one(0), one(1)})}));
  else
    steps.push_back(launch(number, {one(0)}, "h.0.mlp"));
  gpu(artifact).kernels.push_back(std::make_unique<KernelT>(std::move(kernel)));
  gpu(artifact).programs = owned<ProgramT>({programOf(std::move(steps))});
  return artifact;
}

/// Small integers, whose products and sums are exact in any order.
std::vector<std::byte> integers(ElementType type, int factor) {
  std::vector<std::byte> bytes(4096);
  const std::uint64_t size = elementBytes(type);
  for (std::uint64_t i = 0; i < bytes.size() / size; ++i) {
    const auto value = static_cast<float>(int(i * factor % 11) - 5);
    const std::uint16_t rounded = floatToBf16(value);
    if (type == ElementType::f32)
      std::memcpy(&bytes[i * 4], &value, 4);
    else
      std::memcpy(&bytes[i * 2], &rounded, 2);
  }
  return bytes;
}

class CudaProducts : public CudaTest {
protected:
  void SetUp() override {
    CudaTest::SetUp();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("tessera-products-{}", ::getpid());
    std::filesystem::remove_all(folder);
    environment("XDG_CACHE_HOME", folder.string());
    setting("MICROSECONDS", "10");
    times("4:2:1:3");
  }
  void TearDown() override {
    std::filesystem::remove_all(folder);
    CudaTest::TearDown();
  }
  /// How long the library's ways take; generated kernels take 10.
  void times(const std::string &microseconds) {
    environment("TESSERA_FAKE_CUBLASLT_MICROSECONDS", microseconds);
  }
  static hal::SessionOptions options(std::string tune = "1000",
                                     std::string mode = "") {
    hal::SessionOptions options = cuda(std::move(mode));
    options.deviceOptions.tune = std::move(tune);
    return options;
  }
  /// The file of choices; there is one at most.
  std::filesystem::path file() const {
    if (!std::filesystem::is_directory(folder))
      return {};
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        return entry.path();
    return {};
  }
  std::string choices() const {
    std::ifstream stream(file());
    std::string text(std::istreambuf_iterator<char>(stream), {});
    const std::size_t title = text.find('\n');
    return text.substr(text.find('\n', title + 1) + 1);
  }
  void overwrite(const std::string &text) const {
    std::ofstream(file(), std::ios::trunc) << text;
  }

  std::filesystem::path folder;
};

/// What the device says of its products.
std::string said(Runner &runner) {
  if (!runner.ok())
    return "error: " + runner.message();
  const std::string line = runner->device().describe();
  const std::size_t at = line.find("; ");
  return at == line.npos ? "" : line.substr(at + 2);
}

/// "w" after two runs.
std::vector<std::byte> resultOf(Runner &runner, const Shape &shape) {
  std::vector<std::byte> w(8192);
  const std::vector<std::byte> before = integers(shape.out, 5);
  EXPECT_TRUE(runner->writeInput("main", "lhs", integers(shape.in, 3)).ok());
  EXPECT_TRUE(runner->writeInput("main", "rhs", integers(shape.in, 7)).ok());
  std::copy(before.begin(), before.end(), w.begin());
  EXPECT_TRUE(runner->writeState("w", w).ok());
  for (int run = 0; run < 2; ++run) {
    const Status status = runner->run("main");
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(runner->readState("w", w).ok());
  return w;
}

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
    return agree(std::vector{a}, std::vector{b}, 64, type);
  };
  EXPECT_TRUE(of(3, 3, kF32));
  EXPECT_TRUE(of(3, 3 + 0x1p-18f, kF32));
  EXPECT_FALSE(of(3, 3 + 0x1p-13f, kF32));
  EXPECT_TRUE(of(3, 3 + 0x1p-7f, kBf16));
  EXPECT_FALSE(of(3, 3 + 0x1p-4f, kBf16));
  EXPECT_FALSE(of(3, NAN, kF32));
  EXPECT_FALSE(of(NAN, NAN, kF32));
  EXPECT_FALSE(agree(std::vector{1.0f}, {}, 1, kF32));
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
  const ArtifactT artifact = productArtifact(shape);
  Runner whole(artifact, options("generated"));
  const auto expected = resultOf(whole, shape);
  for (const char *function :
       {"cuMemAlloc_v2", "cuEventCreate", "cuEventRecord", "cuEventElapsedTime",
        "cuMemcpyDtoHAsync_v2", "cuLaunchKernel"})
    for (unsigned call = 1; call <= 8; ++call) {
      std::filesystem::remove_all(folder);
      fake.reset();
      setting("FAIL", fmt::format("{}:{}:1", function, call));
      Runner runner(artifact, options());
      setting("FAIL", "");
      if (runner.ok())
        EXPECT_TRUE(resultOf(runner, shape) == expected) << function << call;
      else
        EXPECT_TRUE(isLineWith(runner.message(), function)) << call;
    }
}
