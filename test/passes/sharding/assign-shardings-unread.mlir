// RUN: tessera-opt %s --assign-shardings="mesh=context=2" --verify-shardings | FileCheck %s
// An input of a batch that the program does not read stays whole. It does not
// keep the tokens of the others from being striped over the axis.

// CHECK-LABEL: func.func @eval_step
// CHECK-SAME: graph.input = "tokens"
// CHECK-SAME: %arg1: tensor<2x8xi32> {graph.input = "targets"}
// CHECK: graph.embedding {{.*}}"context"
func.func @eval_step(%tokens: tensor<2x8xi32> {graph.input = "tokens"}, %targets: tensor<2x8xi32> {graph.input = "targets"},
                     %table: tensor<16x6xf32> {graph.role = #graph<role parameter>, graph.state = "table"}) -> (tensor<f32> {graph.output = "sum"}) {
  %x = graph.embedding %table, %tokens : (tensor<16x6xf32>, tensor<2x8xi32>) -> tensor<2x8x6xf32>
  %y = graph.reduce %x sum dims [0, 1, 2] : tensor<2x8x6xf32> -> tensor<f32>
  return %y : tensor<f32>
}
