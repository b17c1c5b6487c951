// Every kernel of whole programs on the emulated GPU: each cluster of the
// training, evaluation and scoring programs of tiny models, and of those that
// read prompts and decode over a paged cache, with sizes that no tile divides,
// against the interpreter on the same inputs.
#include "compiler/Phases.h"
#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/graph/GraphSamplingOps.h"
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "models/Build.h"
#include "models/HfConfig.h"
#include "models/Recipe.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/Passes.h"
#include "test/support/HostBuffer.h"
#include "test/support/RunKernels.h"
#include <gtest/gtest.h>
#include <random>

namespace tessera::testing {
namespace {

using interpreter::Tensor;
using interpreter::Tensors;

struct Family {
  std::string name, config;
};

// Heads, widths and vocabularies that leave ragged edges in every direction.
const Family kFamilies[] = {
    {"gpt2", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
       "vocab_size": 397, "n_embd": 36, "n_layer": 2, "n_head": 3,
       "n_positions": 64, "activation_function": "gelu_new", "attn_pdrop": 0.0,
       "embd_pdrop": 0.1, "resid_pdrop": 0.1})"},
    {"llama", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
       "vocab_size": 203, "hidden_size": 40, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2,
       "max_position_embeddings": 64, "intermediate_size": 92,
       "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
       "tie_word_embeddings": false})"},
};

struct Program {
  Family family;
  std::string precision, target;
  models::Mode mode;
};

std::ostream &operator<<(std::ostream &os, const Program &program) {
  return os << program.family.name;
}

// The programs as they are after fusion; null where that fails.
mlir::OwningOpRef<mlir::ModuleOp> fusedModule(const Program &program) {
  auto spec = models::parseHfConfig(program.family.config, "config.json");
  const std::string overrides[] = {
      "batch.micro=3",      "batch.accumulate=2",
      "batch.sequence=21",  "inference.context=61",
      "inference.page=8",   "inference.batch=3",
      "inference.chunk=19", "precision.compute=" + program.precision};
  auto recipe = models::loadRecipe("", overrides);
  EXPECT_TRUE(spec.ok()) << spec.message();
  EXPECT_TRUE(recipe.ok()) << recipe.message();
  if (!spec.ok() || !recipe.ok())
    return {};
  auto module =
      models::buildModel(kernelContext(), *spec, *recipe, program.mode);
  EXPECT_TRUE(bool(module));
  for (const Phase &phase : phases(program.mode).drop_front()) {
    if (phase.forEachKind)
      break;
    mlir::PassManager pipeline(&kernelContext());
    phase.build(pipeline, PhaseOptions{*recipe, {}, program.mode});
    EXPECT_TRUE(mlir::succeeded(pipeline.run(**module))) << phase.name.str();
  }
  return std::move(*module);
}

// A module with a function for each distinct cluster of `programs`.
mlir::OwningOpRef<mlir::ModuleOp> clustersOf(mlir::ModuleOp programs) {
  mlir::OpBuilder b(&kernelContext());
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(b.getUnknownLoc());
  llvm::StringMap<bool> seen;
  programs.walk([&](graph::ClusterOp cluster) {
    std::string key = bodyKey(cluster);
    for (mlir::Type type : cluster->getOperandTypes())
      llvm::raw_string_ostream(key) << type;
    if (!seen.try_emplace(key).second)
      return;
    b.setInsertionPointToEnd(module->getBody());
    auto function = b.create<mlir::func::FuncOp>(
        cluster.getLoc(), "f" + std::to_string(seen.size()),
        b.getFunctionType(cluster->getOperandTypes(),
                          cluster->getResultTypes()));
    mlir::Block *body = function.addEntryBlock();
    b.setInsertionPointToStart(body);
    mlir::IRMapping map;
    map.map(cluster->getOperands(), body->getArguments());
    mlir::Operation *copy = b.clone(*cluster, map);
    b.create<mlir::func::ReturnOp>(cluster.getLoc(), copy->getResults());
  });
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module)));
  return module;
}

// Indices of what is replaced, rows or logits, are told apart, or negative.
bool hasOwnIndices(mlir::func::FuncOp function) {
  return function
      .walk([&](mlir::Operation *op) {
        return llvm::isa<graph::ScatterRowsOp, graph::SampleOp>(op)
                   ? mlir::WalkResult::interrupt()
                   : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

// Positive, so that roots and logarithms have values; indices that every table
// has.
Tensors inputsOf(mlir::func::FuncOp function) {
  std::mt19937_64 engine(7);
  std::uniform_real_distribution<double> uniform(0.05, 1);
  Tensors inputs;
  for (mlir::Type type : function.getArgumentTypes()) {
    auto tensorType = mlir::cast<mlir::RankedTensorType>(type);
    Tensor tensor(tensorType.getShape());
    double next = 0;
    for (double &value : tensor.data) {
      value = uniform(engine);
      if (tensorType.getElementType().isInteger(32) && hasOwnIndices(function))
        value = value < 0.2 ? -1 : ++next;
      else if (tensorType.getElementType().isInteger(1))
        value = value < 0.5;
      else if (!mlir::isa<mlir::FloatType>(tensorType.getElementType()))
        value = std::floor(20 * value);
    }
    inputs.push_back(HostBuffer(tensorType, tensor).values(tensor.shape));
  }
  return inputs;
}

// Largest difference, as a part of the largest element.
double difference(const Tensor &actual, const Tensor &expected) {
  double largest = 1e-30, worst = 0;
  for (double value : expected.data)
    if (std::isfinite(value))
      largest = std::max(largest, std::abs(value));
  for (int64_t i = 0; i < expected.size(); ++i) {
    double x = actual.data[i], y = expected.data[i];
    if (x == y || (std::isnan(x) && std::isnan(y)))
      continue;
    double apart = std::abs(x - y) / largest;
    worst = std::max(worst, std::isnan(apart) ? INFINITY : apart);
  }
  return worst;
}

class ProgramKernelsTest : public ::testing::TestWithParam<Program> {};

TEST_P(ProgramKernelsTest, MatchInterpreter) {
  const Program &program = GetParam();
  auto programs = fusedModule(program);
  ASSERT_TRUE(programs);
  auto clusters = clustersOf(*programs);
  mlir::ModuleOp tiled = clusters->clone();
  mlir::OwningOpRef<mlir::ModuleOp> owner(tiled);
  mlir::PassManager pipeline(&kernelContext());
  buildKernelsPipeline(pipeline, {program.target});
  ASSERT_TRUE(mlir::succeeded(pipeline.run(tiled)));
  auto compiled = KernelProgram::compile(tiled, program.target);
  ASSERT_TRUE(bool(compiled)) << llvm::toString(compiled.takeError());
  int cases = 0, kernels = 0;
  tiled.walk([&](tile::KernelOp) { ++kernels; });
  for (auto function : clusters->getOps<mlir::func::FuncOp>()) {
    std::string name = function.getName().str();
    std::string what =
        (*function.getOps<graph::ClusterOp>().begin()).getName().str();
    Tensors inputs = inputsOf(function);
    auto expected = interpreter::interpret(*clusters, name, inputs);
    ASSERT_TRUE(bool(expected)) << llvm::toString(expected.takeError());
    Tensors first;
    // The numbers are seeds of the order of threads and blocks here.
    for (const RunOptions &options :
         {RunOptions{1, false, "exact"}, RunOptions{2, false, "exact"},
          RunOptions{3, false, "hardware"}, RunOptions{4, false, "hardware"}}) {
      const int64_t seed = options.blocksAtOnce;
      auto results = (*compiled)->run(name, inputs, options);
      ASSERT_TRUE(bool(results))
          << what << ": " << llvm::toString(results.takeError());
      for (auto [i, result] : llvm::enumerate(*results)) {
        EXPECT_LE(difference(result, (*expected)[i]),
                  program.precision == "fp32" ? 2e-5 : 2e-2)
            << what << ", result " << i << ", " << options.numerics << ", seed "
            << seed;
        if (seed % 2 == 0)
          EXPECT_EQ(difference(result, first[i]), 0)
              << what << ": other bits with seed " << seed;
      }
      first = *results;
      ++cases;
    }
  }
  std::cout << program.family.name << ' ' << program.precision << ' '
            << program.target
            << (program.mode == models::Mode::Infer ? " infer: " : " train: ")
            << kernels << " kernels, " << cases << " cases\n";
}

std::vector<Program> allPrograms() {
  std::vector<Program> programs;
  for (const Family &family : kFamilies)
    for (const char *precision : {"fp32", "bf16"})
      for (const char *target : {"cuda:sm_80", "cuda:sm_90a"})
        for (models::Mode mode : {models::Mode::Train, models::Mode::Infer})
          programs.push_back({family, precision, target, mode});
  return programs;
}

INSTANTIATE_TEST_SUITE_P(
    All, ProgramKernelsTest, ::testing::ValuesIn(allPrograms()),
    [](const auto &info) {
      return info.param.family.name + "_" + info.param.precision + "_" +
             info.param.target.substr(5) +
             (info.param.mode == models::Mode::Infer ? "_infer" : "");
    });

} // namespace
} // namespace tessera::testing
