// Fused and tiled functions, compiled for the CPU and printed for the emulated
// GPU, against the interpreter on the functions they came from.
#include "compiler/interpreter/Interpreter.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cuda/Cubin.h"
#include "compiler/target/cuda/CudaPrinter.h"
#include "dialects/tile/KernelBlocks.h"
#include "hardware/Targets.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/Tiling.h"
#include "test/passes/kernels/KernelCases.h"
#include "test/support/HostBuffer.h"
#include "test/support/RunKernels.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

// Integers are drawn as such; floats as their type holds them.
Tensors randomInputs(mlir::func::FuncOp function, const KernelCase &test) {
  std::mt19937_64 engine(42);
  // std::uniform_real_distribution computes two logarithms for each number.
  auto uniform = [&] {
    return test.low +
           (test.high - test.low) * (static_cast<double>(engine()) * 0x1p-64);
  };
  Tensors inputs;
  for (mlir::Type type : function.getArgumentTypes()) {
    auto tensorType = mlir::cast<mlir::RankedTensorType>(type);
    Tensor tensor(tensorType.getShape());
    for (double &value : tensor.data) {
      value = uniform();
      if (!mlir::isa<mlir::FloatType>(tensorType.getElementType()))
        value = std::floor(value);
    }
    inputs.push_back(HostBuffer(tensorType, tensor).values(tensor.shape));
  }
  return inputs;
}

void expectClose(const Tensor &actual, const Tensor &expected, double tolerance,
                 const std::string &what) {
  ASSERT_EQ(actual.shape, expected.shape) << what;
  double largest = 0;
  for (double value : expected.data)
    largest = std::max(largest, std::abs(value));
  for (int64_t i = 0; i < expected.size(); ++i)
    ASSERT_LE(std::abs(actual.data[i] - expected.data[i]), tolerance * largest)
        << what << ", element " << i << ": " << actual.data[i] << " for "
        << expected.data[i];
}

std::string print(const Tensor &tensor) {
  return std::to_string(tensor.size()) + " elements";
}

using Parameter = std::tuple<KernelCase, std::string>;

// "", "fast" or "sweep" (test/README.md).
std::string_view tier() {
  const char *name = std::getenv("TESSERA_TEST_TIER");
  return name ? name : "";
}

class KernelsTest : public ::testing::TestWithParam<Parameter> {};

/// More tiles than an H200 has SMs concern persistent blocks alone, and take
/// other targets half a minute.
bool isOfSweep(const KernelCase &test, const std::string &target) {
  return llvm::StringRef(test.name).starts_with("Boxes") &&
         test.name.find("Tiles") != std::string::npos &&
         target != "cuda:sm_90a" && target != "cpu:amx";
}

TEST_P(KernelsTest, MatchesInterpreter) {
  const auto &[test, target] = GetParam();
  if (isOfSweep(test, target) && tier() != "sweep")
    GTEST_SKIP() << "of a slower tier (test/README.md)";
  if (std::string missing = cpu::missingFeatures(target); !missing.empty())
    GTEST_SKIP() << "this processor lacks" << missing;
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(test.text, &kernelContext());
  ASSERT_TRUE(module);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("main");
  Tensors inputs = randomInputs(function, test);
  if (test.prepare)
    test.prepare(inputs);
  auto expected = interpreter::interpret(*module, "main", inputs);
  ASSERT_TRUE(bool(expected)) << llvm::toString(expected.takeError());

  mlir::PassManager pipeline(&kernelContext());
  buildFusionPipeline(pipeline);
  pipeline.addPass(createVerifyFused());
  buildSelectionPipeline(pipeline, {target});
  buildKernelsPipeline(pipeline, {target});
  ASSERT_TRUE(mlir::succeeded(pipeline.run(*module)));
  auto program = KernelProgram::compile(*module, target);
  ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
  auto results = (*program)->run("main", inputs);
  ASSERT_TRUE(bool(results)) << llvm::toString(results.takeError());
  ASSERT_EQ(results->size(), expected->size());
  for (size_t i = 0; i < results->size(); ++i)
    expectClose((*results)[i], (*expected)[i], test.tolerance,
                "result " + std::to_string(i));

  // Other ranges of blocks, other slots: the same bits. On a GPU one of the
  // runs is as hardware computes, which must be as close.
  const bool isGpu = llvm::StringRef(target).starts_with("cuda:");
  for (const RunOptions &options :
       {RunOptions{1, false, isGpu ? "hardware" : ""}, RunOptions{3, true}}) {
    auto again = (*program)->run("main", inputs, options);
    ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
    for (size_t i = 0; i < again->size(); ++i) {
      if (!options.numerics.empty())
        expectClose((*again)[i], (*expected)[i], test.tolerance,
                    options.numerics + ", result " + std::to_string(i));
      else
        EXPECT_EQ((*again)[i].data, (*results)[i].data)
            << print((*again)[i]) << " differ with blocksAtOnce "
            << options.blocksAtOnce;
    }
  }
}

// A function for each variant of the kernels that main() launches, which
// launches those: main_0 and so on, of each kernel its variant of that number.
// Their count is returned.
unsigned addVariants(mlir::ModuleOp module) {
  auto kernels = *module.getOps<mlir::ModuleOp>().begin();
  auto variantsOf = [&](tile::LaunchOp launch) {
    auto kernel = kernels.lookupSymbol<tile::KernelOp>(launch.getKernel());
    return kernel->getAttrOfType<mlir::ArrayAttr>(kKernelVariantsAttr);
  };
  auto main = module.lookupSymbol<mlir::func::FuncOp>("main");
  unsigned count = 0;
  main.walk([&](tile::LaunchOp launch) {
    if (auto variants = variantsOf(launch))
      count = std::max<unsigned>(count, variants.size());
  });
  mlir::OpBuilder b(main);
  for (unsigned i = 0; i < count; ++i) {
    auto copy = mlir::cast<mlir::func::FuncOp>(b.clone(*main));
    copy.setName("main_" + std::to_string(i));
    copy.walk([&](tile::LaunchOp launch) {
      auto variants = variantsOf(launch);
      if (!variants)
        return;
      auto name = mlir::cast<mlir::FlatSymbolRefAttr>(
          variants[std::min<unsigned>(i, variants.size() - 1)]);
      auto blocks = kernels.lookupSymbol<tile::KernelOp>(name.getValue())
                        ->getAttrOfType<mlir::IntegerAttr>(tile::kBlocksAttr);
      launch.setKernelAttr(name);
      launch.setBlocks({blocks.getInt()});
    });
  }
  return count;
}

class VariantsTest : public ::testing::TestWithParam<Parameter> {};

TEST_P(VariantsTest, MatchInterpreter) {
  const auto &[test, target] = GetParam();
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(test.text, &kernelContext());
  ASSERT_TRUE(module);
  Tensors inputs =
      randomInputs(module->lookupSymbol<mlir::func::FuncOp>("main"), test);
  auto expected = interpreter::interpret(*module, "main", inputs);
  ASSERT_TRUE(bool(expected)) << llvm::toString(expected.takeError());
  mlir::PassManager pipeline(&kernelContext());
  buildFusionPipeline(pipeline);
  pipeline.addPass(createVerifyFused());
  buildSelectionPipeline(pipeline, {target});
  buildKernelsPipeline(pipeline, {target}, /*allVariants=*/true);
  ASSERT_TRUE(mlir::succeeded(pipeline.run(*module)));
  unsigned count = addVariants(*module);
  EXPECT_GE(count, 1u);
  mlir::PassManager verifier(&kernelContext());
  verifier.addPass(createVerifyTiled());
  ASSERT_TRUE(mlir::succeeded(verifier.run(*module)));
  auto program = KernelProgram::compile(*module, target);
  ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
  for (unsigned i = 0; i < count; ++i)
    for (const RunOptions &options :
         {RunOptions{1, false}, RunOptions{2, false},
          RunOptions{3, false, "hardware"}}) {
      auto results =
          (*program)->run("main_" + std::to_string(i), inputs, options);
      ASSERT_TRUE(bool(results)) << llvm::toString(results.takeError());
      for (size_t r = 0; r < results->size(); ++r)
        expectClose((*results)[r], (*expected)[r], test.tolerance,
                    "variant " + std::to_string(i) + ", result " +
                        std::to_string(r));
    }
}

// The same kernels as device code, without spills: a few cases at once, since
// of a small one's time nvcc takes half for its own headers.
using CubinParameter = std::tuple<std::vector<KernelCase>, std::string>;

// Names tell the kernels of one case from those of others.
void renameKernel(cuda::KernelShape &shape, const std::string &test) {
  const std::string macro = "TESSERA_KERNEL(";
  size_t at = shape.text.find(macro + shape.name + ",");
  ASSERT_NE(at, std::string::npos) << shape.text;
  shape.text.insert(at + macro.size(), test + "_");
  shape.name = test + "_" + shape.name;
}

void printCase(const KernelCase &test, const std::string &target,
               std::vector<cuda::KernelShape> &shapes) {
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(test.text, &kernelContext());
  mlir::PassManager pipeline(&kernelContext());
  buildFusionPipeline(pipeline);
  pipeline.addPass(createVerifyFused());
  buildSelectionPipeline(pipeline, {target});
  buildKernelsPipeline(pipeline, {target});
  ASSERT_TRUE(mlir::succeeded(pipeline.run(*module)));
  for (auto kernels : module->getOps<mlir::ModuleOp>()) {
    auto printed = cuda::printKernels(kernels, *lookupTileTarget(target));
    ASSERT_TRUE(bool(printed)) << llvm::toString(printed.takeError());
    for (cuda::KernelShape &shape : printed->kernels) {
      renameKernel(shape, test.name);
      shapes.push_back(std::move(shape));
    }
  }
}

class CubinTest : public ::testing::TestWithParam<CubinParameter> {};

/// nvcc takes minutes for them: `make test` compiles those of sm_90a, of
/// attention with documents the small ones, and of sm_80 some products;
/// `make check` a few (test/README.md).
static bool isOfAnotherTier(const CubinParameter &group) {
  const auto &[cases, target] = group;
  const std::string_view suite = ::testing::UnitTest::GetInstance()
                                     ->current_test_info()
                                     ->test_suite_name();
  if (tier() == "fast")
    return target == "cuda:sm_80" || !suite.starts_with("Quantized/");
  const bool isSlow = suite.starts_with("Large/") &&
                      cases.front().name.starts_with("PackedAttention");
  const bool isOther =
      target == "cuda:sm_80" && !suite.starts_with("Quantized/");
  return tier() != "sweep" && (isOther || isSlow);
}

TEST_P(CubinTest, PassesTheGates) {
  if (cuda::findNvcc().empty())
    GTEST_SKIP() << "no nvcc";
  const auto &[cases, target] = GetParam();
  if (isOfAnotherTier(GetParam()))
    GTEST_SKIP() << "of a slower tier (test/README.md)";
  std::vector<cuda::KernelShape> shapes;
  for (const KernelCase &test : cases)
    ASSERT_NO_FATAL_FAILURE(printCase(test, target, shapes)) << test.name;
  if (shapes.empty()) // functions of views alone
    return;
  std::vector<llvm::StringRef> texts;
  for (const cuda::KernelShape &shape : shapes)
    texts.push_back(shape.text);
  auto cubin = cuda::compileCubin(
      cuda::translationUnit(texts, *lookupTileTarget(target)),
      llvm::StringRef(target).split(':').second);
  ASSERT_TRUE(bool(cubin)) << llvm::toString(cubin.takeError());
  EXPECT_EQ(cubin->kernels.size(), shapes.size());
  EXPECT_EQ(cubin->bytes.substr(1, 3), "ELF");
  for (const cuda::KernelShape &shape : shapes) {
    auto kernel = llvm::find_if(
        cubin->kernels, [&](const auto &k) { return k.name == shape.name; });
    ASSERT_NE(kernel, cubin->kernels.end()) << shape.name;
    if (shape.maps.empty()) // boxes of operands of wgmma
      continue;
    EXPECT_GT(kernel->hgmma, 0) << shape.text;
    EXPECT_EQ(kernel->hmma, 0) << shape.text;
  }
}

/// Of attention only the first case of each kind and type. Those of all head
/// dimensions, of sizes that training has, are largeAttentionCases(): a kernel
/// takes nvcc a second.
std::vector<KernelCase>
withFewOfAttention(const std::vector<KernelCase> &cases) {
  std::vector<KernelCase> chosen;
  std::set<std::string> seen;
  for (const KernelCase &each : cases) {
    bool isAttention = each.name.find("Attention") != std::string::npos;
    std::string kind =
                    each.name.substr(0, each.name.find_first_of("0123456789")),
                type = each.name.substr(each.name.rfind('_') + 1);
    if (!isAttention || seen.insert(kind + type).second)
      chosen.push_back(each);
  }
  return chosen;
}

std::vector<std::vector<KernelCase>>
inGroups(const std::vector<KernelCase> &cases, size_t most) {
  std::vector<std::vector<KernelCase>> groups;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (i % most == 0)
      groups.emplace_back();
    groups.back().push_back(cases[i]);
  }
  return groups;
}

std::string shortName(const std::string &target) {
  return target.substr(target.find_first_of(':') + 1);
}

std::string nameOfGroup(const ::testing::TestParamInfo<CubinParameter> &info) {
  const auto &[cases, target] = info.param;
  return cases.front().name +
         (cases.size() > 1 ? "_to_" + cases.back().name : "") + "_" +
         shortName(target);
}

std::string nameOf(const ::testing::TestParamInfo<Parameter> &info) {
  return std::get<0>(info.param).name + "_" +
         shortName(std::get<1>(info.param));
}

// Cases of all kinds.
std::vector<KernelCase> allCases() {
  std::vector<KernelCase> cases = kernelCases();
  for (const auto *more :
       {&contractionCases(), &attentionCases(), &pagedCases(), &groupedCases(),
        &routingCases(), &sampleCases(), &scanCases()})
    cases.insert(cases.end(), more->begin(), more->end());
  return cases;
}

// Some of the contractions: both majors, ragged tiles, batches, an epilogue.
std::vector<KernelCase> variantCases() {
  std::vector<KernelCase> cases;
  for (const KernelCase &one : contractionCases())
    for (const char *name :
         {"Boxes0", "Boxes3", "Boxes4", "BoxedEpilogue", "Product1Ragged_f32",
          "Batches2", "PaddedRows_bf16"})
      if (one.name == name)
        cases.push_back(one);
  return cases;
}

// Of products with quantized weights, one of each kind.
std::vector<KernelCase> someQuantCases() {
  std::vector<KernelCase> cases;
  for (KernelCase &one : gpuQuantCases())
    for (const char *name :
         {"Int4Large_bf16", "Int8One_bf16", "Int8FiveRowsZeros_bf16_gelu",
          "Int4SixteenRowsZeros_bf16", "Int4SixteenRows_f32_gelu",
          "Int8ManyRaggedZeros_bf16_gelu", "Int4ManyRagged_f32_gelu",
          "ExpertsPromptInt8Zeros_bf16", "Int4OneDeepZeros_bf16",
          "Int8SixteenRowsDeepZeros_bf16_gelu", "ExpertsOneRowInt4Deep_bf16",
          "Fp8OneRagged_bf16_gelu", "Fp8ManyRagged_bf16_gelu",
          "Fp8FiveRows_f32_gelu", "Fp8SixteenRowsDeep_bf16_gelu",
          "ExpertsPromptFp8_bf16", "RowSumsInt4Zeros_bf16"})
      if (one.name == name)
        cases.push_back(std::move(one));
  return cases;
}

// What matrix registers multiply.
std::vector<KernelCase> bf16ProductCases() {
  std::vector<KernelCase> cases;
  for (const auto *some : {&contractionCases(), &groupedCases()})
    for (const KernelCase &one : *some)
      if (one.text.find("bf16") != std::string::npos)
        cases.push_back(one);
  return cases;
}

// Attention whose pages matrix registers multiply.
std::vector<KernelCase> bf16PagedCases() {
  std::vector<KernelCase> cases;
  for (const KernelCase &one : pagedCases())
    if (one.text.find("bf16") != std::string::npos)
      cases.push_back(one);
  return cases;
}

// Attention by roles: whose choice of tiles has others.
std::vector<KernelCase> attentionVariantCases() {
  std::vector<KernelCase> cases;
  for (const KernelCase &one : attentionCases())
    for (const char *name : {"Attention2x200x4over2x64window0_bf16",
                             "Attention1x400x1over1x128window0_bf16",
                             "Attention1x200x1over1x192window100_bf16"})
      if (one.name == name)
        cases.push_back(one);
  return cases;
}

const auto gpus = ::testing::Values("cuda:sm_80", "cuda:sm_90a");
INSTANTIATE_TEST_SUITE_P(
    Cuda, CubinTest,
    ::testing::Combine(
        ::testing::ValuesIn(inGroups(withFewOfAttention(allCases()), 16)),
        gpus),
    nameOfGroup);
INSTANTIATE_TEST_SUITE_P(
    Large, CubinTest,
    ::testing::Combine(::testing::ValuesIn(inGroups(largeAttentionCases(), 4)),
                       gpus),
    nameOfGroup);
INSTANTIATE_TEST_SUITE_P(
    LargeQuantized, CubinTest,
    ::testing::Combine(::testing::ValuesIn(inGroups(largeQuantCases(), 4)),
                       gpus),
    nameOfGroup);
INSTANTIATE_TEST_SUITE_P(
    LargeGrouped, CubinTest,
    ::testing::Combine(::testing::ValuesIn(inGroups(largeGroupedCases(), 4)),
                       gpus),
    nameOfGroup);
INSTANTIATE_TEST_SUITE_P(
    LargePaged, CubinTest,
    ::testing::Combine(::testing::ValuesIn(inGroups(largePagedCases(), 4)),
                       gpus),
    nameOfGroup);
INSTANTIATE_TEST_SUITE_P(
    Quantized, CubinTest,
    ::testing::Combine(::testing::ValuesIn(inGroups(someQuantCases(), 1)),
                       gpus),
    nameOfGroup);
INSTANTIATE_TEST_SUITE_P(
    All, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(allCases()),
                       ::testing::Values("cpu:avx512bf16", "cpu:avx2",
                                         "cuda:sm_80", "cuda:sm_90a")),
    nameOf);

INSTANTIATE_TEST_SUITE_P(
    Matrices, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(bf16ProductCases()),
                       ::testing::Values("cpu:amx")),
    nameOf);

INSTANTIATE_TEST_SUITE_P(
    PagedMatrices, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(bf16PagedCases()),
                       ::testing::Values("cpu:amx")),
    nameOf);

std::vector<std::string> allTargets() {
  std::vector<std::string> names = cpuTargetNames();
  for (const TileTarget &target : cudaTileTargets())
    names.push_back(target.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    PagedInt8, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(pagedInt8Cases()),
                       ::testing::ValuesIn(allTargets())),
    nameOf);
INSTANTIATE_TEST_SUITE_P(
    PagedInt8, CubinTest,
    ::testing::Combine(::testing::ValuesIn(inGroups(pagedInt8Cases(), 12)),
                       gpus),
    nameOfGroup);

INSTANTIATE_TEST_SUITE_P(
    Quantized, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(quantCases()),
                       ::testing::ValuesIn(cpuTargetNames())),
    nameOf);

INSTANTIATE_TEST_SUITE_P(
    QuantizedEmulated, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(gpuQuantCases()),
                       ::testing::Values("cuda:sm_80")),
    nameOf);
INSTANTIATE_TEST_SUITE_P(
    QuantizedHopper, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(someQuantCases()),
                       ::testing::Values("cuda:sm_90a")),
    nameOf);

INSTANTIATE_TEST_SUITE_P(Cuda, VariantsTest,
                         ::testing::Combine(::testing::ValuesIn(variantCases()),
                                            gpus),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(
    Attention, VariantsTest,
    ::testing::Combine(::testing::ValuesIn(attentionVariantCases()),
                       ::testing::Values("cuda:sm_90a")),
    nameOf);

} // namespace
