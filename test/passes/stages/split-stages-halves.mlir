// RUN: tessera-opt %s --split-stages=device=1 --symbol-dce --canonicalize --cse | FileCheck %s

// The gradient of the input goes to the rank before; that of the weight is
// computed after it. Both keep the layer of the call that was inlined.
module attributes {dist.schedule = "0F0,0I0,0W0\0A1F0,1I0,1W0\0A"} {
// The first stage has no input that wants a gradient.
// CHECK: dist.pipeline = {backward = array<i64: 576, 576>, forward = array<i64: 256, 256>, {{.*}}, weights = array<i64: 576, 320>}
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
// CHECK-LABEL: func.func @train_step
// CHECK: %[[Y:.*]] = dist.permute {{.*}} targets [1, -1]
// CHECK: %[[Z:.*]] = call @layer(%[[Y]]
// CHECK: %[[DY:.*]] = graph.einsum "bn,kn->bk" %[[Z]]{{.*}} {graph.layer = #graph.layer<1, backward>}
// CHECK-NOT: graph.einsum
// CHECK: dist.permute %[[DY]] targets [-1, 0]
// CHECK: graph.einsum "bk,bn->kn" %[[Y]], %[[Z]] {graph.layer = #graph.layer<1, backward>}
func.func @train_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.state = "a"}, %b: tensor<8x8xf32> {graph.state = "b"}) -> (tensor<8x8xf32> {graph.state = "a"}, tensor<8x8xf32> {graph.state = "b"}) {
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:2 = graph.loop 1 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %y = func.call @layer(%x, %a) {dist.forward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %z = func.call @layer(%y, %b) {dist.forward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %dy:2 = func.call @layer.backward(%y, %b, %z) {dist.backward_stage = 1 : i64, graph.layer = #graph.layer<1, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
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
  %dw = graph.einsum "bk,bn->kn" %x, %dy : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  %dx = graph.einsum "bn,kn->bk" %dy, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %dx, %dw : tensor<2x8xf32>, tensor<8x8xf32>
}
}
