// RUN: tessera-opt %s --split-stages=device=1 --symbol-dce --canonicalize --cse | FileCheck %s

// A loop computes the gradients of input and weight at once. The latter is added before the former is sent, and not
// kept until W.
module attributes {dist.schedule = "0F0,0F1,0I0,0W0,0I1,0W1\0A1F0,1I0,1F1,1I1,1W0,1W1\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
// CHECK-LABEL: func.func @train_step
// CHECK: %[[FIRST:.*]]:2 = graph.loop 2
// CHECK: dist.permute %[[FIRST]]#0 targets [-1, 0]
// CHECK: %[[SECOND:.*]]:2 = graph.loop 2
// CHECK: graph.add %[[FIRST]]#1, %[[SECOND]]#1
// CHECK-NEXT: dist.permute %[[SECOND]]#0 targets [-1, 0]
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.state = "a"}, %b: tensor<8x8xf32> {graph.state = "b"}) -> (tensor<8x8xf32> {graph.state = "a"}, tensor<8x8xf32> {graph.state = "b"}) {
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:2 = graph.loop 2 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %y = func.call @layer(%x, %a) {dist.forward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %z = func.call @layer(%y, %b) {dist.forward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %dy:2 = func.call @layer.backward(%y, %b, %z) {dist.backward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%x, %a, %dy#0) {dist.backward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %a1 = graph.add %sa, %dx#1 : tensor<8x8xf32>
    %b1 = graph.add %sb, %dy#1 : tensor<8x8xf32>
    graph.yield %a1, %b1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  return %sums#0, %sums#1 : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
func.func private @layer.backward(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>, %dy: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>) {
  %zero = graph.constant dense<0.0> : tensor<2x8xf32>
  %none = graph.constant dense<0.0> : tensor<8x8xf32>
  %both:2 = graph.loop 2 (%i, %sx = %zero, %sw = %none) : (tensor<2x8xf32>, tensor<8x8xf32>) {
    %dw = graph.einsum "bk,bn->kn" %x, %dy : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
    %dx = graph.einsum "bn,kn->bk" %dy, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %nx = graph.add %sx, %dx : tensor<2x8xf32>
    %nw = graph.add %sw, %dw : tensor<8x8xf32>
    graph.yield %nx, %nw : tensor<2x8xf32>, tensor<8x8xf32>
  }
  return %both#0, %both#1 : tensor<2x8xf32>, tensor<8x8xf32>
}
}
