// An artifact with one product of matrices, and GPUs on which it takes a set
// time.
#pragma once
#include "runtime/support/Floats.h"
#include "test/runtime/hal/cuda/CudaTest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tessera::test {

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

inline GemmOperandT operandOf(const Shape &shape, std::uint32_t buffer,
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
inline std::uint64_t extentOf(const GemmOperandT &operand, std::uint64_t rows,
                              std::uint64_t columns, std::uint64_t batches) {
  return operand.offset + (rows - 1) * operand.major +
         (columns - 1) * operand.minor + (batches - 1) * operand.batch + 1;
}

/// One kernel that is that product, its result the state "w"; its operands the
/// inputs "lhs" and "rhs". `repeats` runs of two instances in a loop, each
/// a little further on; `isOneByOne`: in launches of their own.
inline ArtifactT productArtifact(const Shape &shape, std::uint64_t repeats = 0,
                                 bool isOneByOne = false) {
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
  share(artifact).state = owned<TensorT>({tensor(
      "w", ElementType::u8, {2 * slot}, Role::parameter, Space::state, 0)});
  EXPECT_LE(std::max({bytes[0], bytes[1], bytes[2]}) + slack, slot);
  const auto number = static_cast<std::uint32_t>(gpu(artifact).kernels.size());
  std::vector<NodeT> steps;
  if (repeats && isOneByOne)
    steps.push_back(
        loop(repeats, {launch(number, {one(0)}), launch(number, {one(1)})}));
  else if (repeats)
    steps.push_back(loop(repeats, {launch(number, {one(0), one(1)})}));
  else
    steps.push_back(launch(number, {one(0)}, "h.0.mlp"));
  gpu(artifact).kernels.push_back(std::make_unique<KernelT>(std::move(kernel)));
  gpu(artifact).programs = owned<ProgramT>({programOf(std::move(steps))});
  return artifact;
}

/// Small integers, whose products and sums are exact in any order.
inline std::vector<std::byte> integers(ElementType type, int factor) {
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

  /// Whatever fails while it is chosen: an error, or the results of the
  /// generated kernel.
  void failEach(const std::vector<const char *> &functions, unsigned calls,
                const ArtifactT &artifact, const Shape &shape);

  std::filesystem::path folder;
};

/// What the device says of its products.
inline std::string said(Runner &runner) {
  if (!runner.ok())
    return "error: " + runner.message();
  const std::string line = runner->device().describe();
  const std::size_t at = line.find("; ");
  return at == line.npos ? "" : line.substr(at + 2);
}

/// "w" after two runs.
inline std::vector<std::byte> resultOf(Runner &runner, const Shape &shape) {
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

inline void CudaProducts::failEach(const std::vector<const char *> &functions,
                                   unsigned calls, const ArtifactT &artifact,
                                   const Shape &shape) {
  Runner whole(artifact, options("generated"));
  const auto expected = resultOf(whole, shape);
  for (const char *function : functions)
    for (unsigned call = 1; call <= calls; ++call) {
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

} // namespace tessera::test
