// Attention with a tile.plan that was written by hand, against the kernels that
// are chosen without it, which KernelsTest compares with the interpreter.
#include "compiler/target/cpu/CpuTarget.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/tile/TileOps.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "passes/kernels/Passes.h"
#include "test/passes/kernels/KernelCases.h"
#include "test/support/RunKernels.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

/// A case whose clusters of one kind take the plan.
struct PlanCase {
  std::string test, target, kind, plan;
};
std::ostream &operator<<(std::ostream &os, const PlanCase &one) {
  return os << one.test << " on " << one.target << ": " << one.kind << ' '
            << one.plan;
}

const KernelCase &caseNamed(const std::string &name) {
  for (const auto *cases : {&attentionCases(), &pagedCases()})
    for (const KernelCase &one : *cases)
      if (one.name == name)
        return one;
  ADD_FAILURE() << "no case " << name;
  return attentionCases().front();
}

Tensors inputsOf(mlir::func::FuncOp function, const KernelCase &test) {
  std::mt19937_64 engine(42);
  std::uniform_real_distribution<double> uniform(test.low, test.high);
  Tensors inputs;
  for (mlir::Type type : function.getArgumentTypes()) {
    Tensor tensor(mlir::cast<mlir::RankedTensorType>(type).getShape());
    for (double &value : tensor.data)
      value = uniform(engine);
    inputs.push_back(tensor);
  }
  if (test.prepare)
    test.prepare(inputs);
  return inputs;
}

class PlansTest : public ::testing::TestWithParam<PlanCase> {
protected:
  /// The results with a plan; without one if it is null.
  llvm::Expected<Tensors> run(mlir::Attribute plan);

  std::string kernels; ///< the text of those that ran
};

llvm::Expected<Tensors> PlansTest::run(mlir::Attribute plan) {
  const PlanCase &planned = GetParam();
  const KernelCase &test = caseNamed(planned.test);
  auto module =
      mlir::parseSourceString<mlir::ModuleOp>(test.text, &kernelContext());
  Tensors inputs =
      inputsOf(module->lookupSymbol<mlir::func::FuncOp>("main"), test);
  mlir::PassManager fusion(&kernelContext()), emission(&kernelContext());
  buildFusionPipeline(fusion);
  fusion.addPass(createVerifyFused());
  buildKernelsPipeline(emission, {planned.target});
  if (mlir::failed(fusion.run(*module)))
    return llvm::createStringError("fusion fails");
  unsigned count = 0;
  module->walk([&](graph::ClusterOp cluster) {
    if (!plan || stringifyClusterKind(cluster.getKind()) != planned.kind)
      return;
    cluster->setAttr(tile::TileDialect::kPlanAttr, plan);
    ++count;
  });
  EXPECT_EQ(count, plan ? 1u : 0u);
  if (mlir::failed(emission.run(*module)))
    return llvm::createStringError("no such kernel");
  kernels.clear();
  llvm::raw_string_ostream(kernels) << *module;
  auto program = KernelProgram::compile(*module, planned.target);
  if (!program)
    return program.takeError();
  return (*program)->run("main", inputs);
}

TEST_P(PlansTest, ComputeTheSame) {
  if (std::string missing = cpu::missingFeatures(GetParam().target);
      !missing.empty())
    GTEST_SKIP() << "this processor lacks" << missing;
  mlir::Attribute plan =
      mlir::parseAttribute("#tile." + GetParam().plan, &kernelContext());
  ASSERT_TRUE(plan);
  auto expected = run({});
  std::string chosen = kernels;
  auto actual = run(plan);
  EXPECT_NE(kernels, chosen) << "the plan changes nothing";
  ASSERT_TRUE(bool(expected)) << llvm::toString(expected.takeError());
  ASSERT_TRUE(bool(actual)) << llvm::toString(actual.takeError());
  ASSERT_EQ(actual->size(), expected->size());
  double tolerance = caseNamed(GetParam().test).tolerance;
  for (size_t i = 0; i < actual->size(); ++i) {
    const auto &from = (*expected)[i].data, &to = (*actual)[i].data;
    double largest = 0;
    for (double value : from)
      largest = std::max(largest, std::abs(value));
    for (size_t j = 0; j < from.size(); ++j)
      ASSERT_LE(std::abs(to[j] - from[j]), tolerance * largest)
          << "result " << i << ", element " << j;
  }
}

// Other tiles than are chosen: larger than the sequence, other engines, keys
// divided among blocks.
INSTANTIATE_TEST_SUITE_P(
    Attention, PlansTest,
    ::testing::Values(
        PlanCase{"Attention2x139x4over2x16window21_f32", "cpu:avx2",
                 "attention", "attention_plan<vector, tile = [16, 32]>"},
        PlanCase{"Attention2x139x4over2x16window21_bf16", "cpu:avx512bf16",
                 "attention", "attention_plan<vector, tile = [32, 256]>"},
        PlanCase{"Attention2x7x2over1x8window0_f32", "cpu:avx512bf16",
                 "attention", "attention_plan<vector, tile = [64, 32]>"},
        PlanCase{"Attention1x40x2over2x8window9Of90From33_f32", "cpu:avx2",
                 "attention", "attention_plan<vector, tile = [16, 128]>"},
        PlanCase{"Attention2x139x4over2x16window21_f32", "cpu:avx2",
                 "attention_grad", "attention_plan<vector, tile = [32, 128]>"},
        PlanCase{"Attention1x67x3over3x20window0_bf16", "cpu:avx512bf16",
                 "attention_grad", "attention_plan<vector, tile = [16, 32]>"},
        PlanCase{"Paged1x1x40over2x16page32window0_f32", "cpu:avx2",
                 "paged_attention", "attention_plan<vector, tile = [16, 32]>"},
        PlanCase{"Attention2x139x4over2x16window21_bf16", "cuda:sm_80",
                 "attention", "attention_plan<tensor_core, tile = [32, 16]>"},
        PlanCase{"Attention2x139x4over2x16window21_f32", "cuda:sm_80",
                 "attention_grad",
                 "attention_grad_plan<tensor_core, dkv = [32, 16], "
                 "dq = [32, 16], separate = true>"},
        PlanCase{"Paged1x1x40over2x16page32window0_bf16", "cuda:sm_80",
                 "paged_attention",
                 "attention_plan<tensor_core, tile = [16, 32], split = 64>"},
        PlanCase{"Attention1x400x1over1x128window0_bf16", "cuda:sm_90a",
                 "attention", "attention_plan<warpgroup, tile = [64, 32]>"},
        PlanCase{"Attention1x400x1over1x128window0_bf16", "cuda:sm_90a",
                 "attention",
                 "attention_plan<warp_specialized, tile = [128, 176], "
                 "ping_pong = true>"},
        PlanCase{"Attention1x136x2over1x128window0_bf16", "cuda:sm_90a",
                 "attention_grad",
                 "attention_grad_plan<warp_specialized, dkv = [48, 128], "
                 "dq = [128, 64], separate = true>"},
        PlanCase{"Attention1x136x2over1x128window0_bf16", "cuda:sm_90a",
                 "attention_grad",
                 "attention_grad_plan<tensor_core, dkv = [16, 32], "
                 "dq = [32, 64]>"},
        PlanCase{"Paged1x1x40over2x16page32window0_bf16", "cuda:sm_90a",
                 "paged_attention",
                 "attention_plan<warpgroup, tile = [64, 32], split = 160>"}));

} // namespace
