// A two-layer model in the form that importing gives, small enough for central
// differences, and what tests need to run its programs.
#pragma once
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/precision/Precision.h"
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"
#include <map>

namespace tessera::testing {

struct TinyModel {
  int64_t micro = 2;     ///< B
  double dropout = 0.25; ///< rate behind both residual branches
  static constexpr int64_t vocabulary = 11, tokens = 5;

  std::string text() const {
    std::string result = kText;
    auto put = [&](const std::string &from, const std::string &to) {
      for (size_t at; (at = result.find(from)) != std::string::npos;)
        result.replace(at, from.size(), to);
    };
    put("$N", std::to_string(micro * tokens));
    put("$B", std::to_string(micro));
    put("$RATE", std::to_string(dropout));
    return result;
  }

private:
  static constexpr const char *kText = R"(
func.func private @layer(%x: tensor<$Bx5x8xf32>, %n1: tensor<8xf32>, %wa: tensor<8x24xf32>, %ba: tensor<24xf32>, %wo: tensor<8x8xf32>,
    %n2: tensor<8xf32>, %c2: tensor<8xf32>, %w1: tensor<8x12xf32>, %b1: tensor<12xf32>, %w2: tensor<12x8xf32>,
    %seed: tensor<i64>, %step: tensor<i64>, %offset: tensor<i64>) -> tensor<$Bx5x8xf32> attributes {graph.block} {
  %a0 = graph.rms_norm %x, %n1 eps 1.0e-5 : tensor<$Bx5x8xf32>, tensor<8xf32>
  %a1 = graph.einsum "btk,kn->btn" %a0, %wa : (tensor<$Bx5x8xf32>, tensor<8x24xf32>) -> tensor<$Bx5x24xf32>
  %a2 = graph.broadcast %ba dims [2] : tensor<24xf32> -> tensor<$Bx5x24xf32>
  %a3 = graph.add %a1, %a2 : tensor<$Bx5x24xf32>
  %q0 = graph.slice %a3 [0, 0, 0] : tensor<$Bx5x24xf32> -> tensor<$Bx5x8xf32>
  %k0 = graph.slice %a3 [0, 0, 8] : tensor<$Bx5x24xf32> -> tensor<$Bx5x8xf32>
  %v0 = graph.slice %a3 [0, 0, 16] : tensor<$Bx5x24xf32> -> tensor<$Bx5x8xf32>
  %q1 = graph.reshape %q0 : tensor<$Bx5x8xf32> -> tensor<$Bx5x2x4xf32>
  %k1 = graph.reshape %k0 : tensor<$Bx5x8xf32> -> tensor<$Bx5x2x4xf32>
  %v1 = graph.reshape %v0 : tensor<$Bx5x8xf32> -> tensor<$Bx5x2x4xf32>
  %q2 = graph.rope %q1 {frequencies = array<f64: 1.0, 0.01>} : tensor<$Bx5x2x4xf32>
  %k2 = graph.rope %k1 {frequencies = array<f64: 1.0, 0.01>} : tensor<$Bx5x2x4xf32>
  %o0, %lse = graph.attention %q2, %k2, %v1 scale 0.5 {causal} : tensor<$Bx5x2x4xf32>, tensor<$Bx5x2x4xf32>, tensor<$Bx5x2x4xf32> -> tensor<$Bx5x2x4xf32>, tensor<$Bx2x5xf32>
  %o1 = graph.reshape %o0 : tensor<$Bx5x2x4xf32> -> tensor<$Bx5x8xf32>
  %o2 = graph.einsum "btk,kn->btn" %o1, %wo : (tensor<$Bx5x8xf32>, tensor<8x8xf32>) -> tensor<$Bx5x8xf32>
  %o3 = graph.dropout %o2 rate $RATE stream 1 seed %seed step %step offset %offset : tensor<$Bx5x8xf32>, tensor<i64>, tensor<i64>, tensor<i64>
  %y = graph.add %x, %o3 : tensor<$Bx5x8xf32>
  %m0 = graph.layer_norm %y, %n2, %c2 eps 1.0e-5 : tensor<$Bx5x8xf32>, tensor<8xf32>, tensor<8xf32>
  %m1 = graph.einsum "btk,kn->btn" %m0, %w1 : (tensor<$Bx5x8xf32>, tensor<8x12xf32>) -> tensor<$Bx5x12xf32>
  %m2 = graph.broadcast %b1 dims [2] : tensor<12xf32> -> tensor<$Bx5x12xf32>
  %m3 = graph.add %m1, %m2 : tensor<$Bx5x12xf32>
  %m4 = graph.silu %m3 : tensor<$Bx5x12xf32>
  %m5 = graph.gelu %m3 tanh : tensor<$Bx5x12xf32>
  %m6 = graph.mul %m4, %m5 : tensor<$Bx5x12xf32>
  %m7 = graph.einsum "btk,kn->btn" %m6, %w2 : (tensor<$Bx5x12xf32>, tensor<12x8xf32>) -> tensor<$Bx5x8xf32>
  %m8 = graph.dropout %m7 rate $RATE stream 2 seed %seed step %step offset %offset : tensor<$Bx5x8xf32>, tensor<i64>, tensor<i64>, tensor<i64>
  %z = graph.add %y, %m8 : tensor<$Bx5x8xf32>
  return %z : tensor<$Bx5x8xf32>
}

// The second layer shares all matrices with the first, but not its norms.
func.func @loss(
    %wte: tensor<11x8xf32> {graph.state = "wte", graph.role = #graph<role parameter>, graph.decay},
    %wpe: tensor<7x8xf32> {graph.state = "wpe", graph.role = #graph<role parameter>, graph.decay},
    %n1: tensor<8xf32> {graph.state = "n1", graph.role = #graph<role parameter>},
    %n2: tensor<8xf32> {graph.state = "n2", graph.role = #graph<role parameter>},
    %c2: tensor<8xf32> {graph.state = "c2", graph.role = #graph<role parameter>},
    %wa: tensor<8x24xf32> {graph.state = "wa", graph.role = #graph<role parameter>, graph.decay},
    %ba: tensor<24xf32> {graph.state = "ba", graph.role = #graph<role parameter>},
    %wo: tensor<8x8xf32> {graph.state = "wo", graph.role = #graph<role parameter>, graph.decay},
    %w1: tensor<8x12xf32> {graph.state = "w1", graph.role = #graph<role parameter>, graph.decay},
    %b1: tensor<12xf32> {graph.state = "b1", graph.role = #graph<role parameter>},
    %w2: tensor<12x8xf32> {graph.state = "w2", graph.role = #graph<role parameter>, graph.decay},
    %tokens: tensor<$Bx5xi32> {graph.input = "tokens"}, %targets: tensor<$Bx5xi32> {graph.input = "targets"},
    %seed: tensor<i64> {graph.input = "seed"}, %step: tensor<i64> {graph.input = "step"}, %offset: tensor<i64> {graph.input = "offset"})
    -> (tensor<f32> {graph.output = "loss_sum"}) attributes {graph.program = #graph.program<loss>} {
  %e0 = graph.embedding %wte, %tokens : (tensor<11x8xf32>, tensor<$Bx5xi32>) -> tensor<$Bx5x8xf32>
  %e1 = graph.slice %wpe [0, 0] : tensor<7x8xf32> -> tensor<5x8xf32>
  %e2 = graph.broadcast %e1 dims [1, 2] : tensor<5x8xf32> -> tensor<$Bx5x8xf32>
  %x0 = graph.add %e0, %e2 : tensor<$Bx5x8xf32>
  %x1 = call @layer(%x0, %n1, %wa, %ba, %wo, %n1, %c2, %w1, %b1, %w2, %seed, %step, %offset) : (tensor<$Bx5x8xf32>, tensor<8xf32>, tensor<8x24xf32>, tensor<24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x12xf32>, tensor<12xf32>, tensor<12x8xf32>, tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<$Bx5x8xf32>
  %x2 = call @layer(%x1, %n2, %wa, %ba, %wo, %n2, %c2, %w1, %b1, %w2, %seed, %step, %offset) : (tensor<$Bx5x8xf32>, tensor<8xf32>, tensor<8x24xf32>, tensor<24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x12xf32>, tensor<12xf32>, tensor<12x8xf32>, tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<$Bx5x8xf32>
  %f0 = graph.rms_norm %x2, %n2 eps 1.0e-5 : tensor<$Bx5x8xf32>, tensor<8xf32>
  %f1 = graph.reshape %f0 : tensor<$Bx5x8xf32> -> tensor<$Nx8xf32>
  %t = graph.reshape %targets : tensor<$Bx5xi32> -> tensor<$Nxi32>
  %l = graph.linear_cross_entropy %f1, %wte, %t : tensor<$Nx8xf32>, tensor<11x8xf32>, tensor<$Nxi32> -> tensor<f32>
  return %l : tensor<f32>
}

func.func @init(%seed: tensor<1xi64> {graph.input = "seed"}) -> (
    tensor<11x8xf32> {graph.state = "wte", graph.role = #graph<role parameter>, graph.decay},
    tensor<7x8xf32> {graph.state = "wpe", graph.role = #graph<role parameter>, graph.decay},
    tensor<8xf32> {graph.state = "n1", graph.role = #graph<role parameter>},
    tensor<8xf32> {graph.state = "n2", graph.role = #graph<role parameter>},
    tensor<8xf32> {graph.state = "c2", graph.role = #graph<role parameter>},
    tensor<8x24xf32> {graph.state = "wa", graph.role = #graph<role parameter>, graph.decay},
    tensor<24xf32> {graph.state = "ba", graph.role = #graph<role parameter>},
    tensor<8x8xf32> {graph.state = "wo", graph.role = #graph<role parameter>, graph.decay},
    tensor<8x12xf32> {graph.state = "w1", graph.role = #graph<role parameter>, graph.decay},
    tensor<12xf32> {graph.state = "b1", graph.role = #graph<role parameter>},
    tensor<12x8xf32> {graph.state = "w2", graph.role = #graph<role parameter>, graph.decay})
    attributes {graph.program = #graph.program<init>} {
  %s = graph.reshape %seed : tensor<1xi64> -> tensor<i64>
  %z = graph.constant dense<0> : tensor<i64>
  %wte = graph.random normal stream 0 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<11x8xf32>
  %wpe = graph.random normal stream 1 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<7x8xf32>
  %n1 = graph.random normal stream 2 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<8xf32>
  %n2 = graph.random normal stream 3 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<8xf32>
  %c2 = graph.random normal stream 4 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<8xf32>
  %wa = graph.random normal stream 5 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<8x24xf32>
  %ba = graph.random normal stream 6 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<24xf32>
  %wo = graph.random normal stream 7 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<8x8xf32>
  %w1 = graph.random normal stream 8 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<8x12xf32>
  %b1 = graph.random normal stream 9 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<12xf32>
  %w2 = graph.random normal stream 10 seed %s step %z : tensor<i64>, tensor<i64> -> tensor<12x8xf32>
  return %wte, %wpe, %n1, %n2, %c2, %wa, %ba, %wo, %w1, %b1, %w2 : tensor<11x8xf32>, tensor<7x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x24xf32>, tensor<24xf32>, tensor<8x8xf32>, tensor<8x12xf32>, tensor<12xf32>, tensor<12x8xf32>
}
)";
};

using Named = std::map<std::string, Tensor>;

/// Runs `build`'s pipeline on the module; the test fails if a pass does.
inline void runPasses(mlir::ModuleOp module,
                      llvm::function_ref<void(mlir::OpPassManager &)> build) {
  mlir::PassManager pipeline(module->getName());
  build(pipeline);
  ASSERT_TRUE(mlir::succeeded(pipeline.run(module)));
}

/// The name by which an argument or result goes, whichever kind it is.
inline std::string portName(mlir::DictionaryAttr attrs) {
  for (llvm::StringRef kind :
       {graph::kStateAttr, graph::kInputAttr, graph::kOutputAttr})
    if (attrs)
      if (auto name = attrs.getAs<mlir::StringAttr>(kind))
        return name.str();
  return "";
}

/// Runs a program on named inputs; unnamed ones are not looked for. Results are
/// by name; where they have none (gradients) by "#0", "#1", ….
inline Named runProgram(mlir::ModuleOp module, llvm::StringRef name,
                        const Named &inputs,
                        const interpreter::Options &options = {}) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>(name);
  EXPECT_TRUE(function) << name.str();
  Tensors arguments;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    std::string port = portName(function.getArgAttrDict(i));
    EXPECT_TRUE(inputs.count(port)) << "no input for " << port;
    arguments.push_back(inputs.at(port));
  }
  llvm::Expected<Tensors> results =
      interpreter::interpret(module, name, arguments, options);
  if (!results) {
    ADD_FAILURE() << llvm::toString(results.takeError());
    return {};
  }
  Named named;
  for (auto [i, value] : llvm::enumerate(*results)) {
    std::string port = portName(function.getResultAttrDict(i));
    named[port.empty() ? "#" + std::to_string(i) : port] = value;
  }
  return named;
}

inline Tensor scalar(double value) { return Tensor({}, value); }

/// Parameters of `function`, small random numbers around `mean`.
inline Named randomParameters(mlir::ModuleOp module, llvm::StringRef name,
                              uint64_t seed) {
  std::mt19937_64 engine(seed);
  Named result;
  auto function = module.lookupSymbol<mlir::func::FuncOp>(name);
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (function.getArgAttr(i, graph::kStateAttr))
      result[portName(function.getArgAttrDict(i))] = randomTensor(
          mlir::cast<mlir::RankedTensorType>(function.getArgumentTypes()[i]),
          -0.8, 0.8, engine);
  return result;
}

/// Token ids below `vocabulary`; where `masked` says so for a sequence and a
/// position, the target is -100.
inline Tensor randomIds(llvm::ArrayRef<int64_t> shape, int64_t vocabulary,
                        uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_int_distribution<int64_t> id(0, vocabulary - 1);
  Tensor ids(shape);
  for (double &value : ids.data)
    value = static_cast<double>(id(engine));
  return ids;
}

/// max |a - b| / max(|a|, |b|, 1e-9) over all elements.
inline double relativeError(const Tensor &a, const Tensor &b) {
  EXPECT_EQ(a.shape, b.shape);
  double worst = 0;
  for (int64_t i = 0; i < a.size(); ++i)
    worst = std::max(
        worst, std::abs(a.data[i] - b.data[i]) /
                   std::max({std::abs(a.data[i]), std::abs(b.data[i]), 1e-9}));
  return worst;
}

} // namespace tessera::testing
