// Everything goes that the interesting op does not need.
// REQUIRES: compiler
// RUN: tessera-reduce %s --reduction-tree='traversal-mode=0 test=%S/Inputs/has-tanh.sh' | FileCheck %s

// CHECK-NOT: @unneeded
// CHECK-NOT: graph.exp
// CHECK: graph.tanh
func.func private @unneeded(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.tanh %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
