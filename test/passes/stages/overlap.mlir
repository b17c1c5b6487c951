// RUN: tessera-opt %s --split-stages=device=2 --symbol-dce --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --split-stages=device=2 --symbol-dce --canonicalize --cse --inline-blocks --interleave-pairs | FileCheck %s --check-prefix=WOVEN

// The last rank computes the forward of a microbatch with the backward of the
// one before. It receives the input of the forward before both.
module attributes {dist.schedule = "0F0,0F1,(0F2;0B0),0B1,0B2\0A1F0,(1F1;1B0),(1F2;1B1),1B2\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>, #dist.axis<"tensor" = 2>]
// CHECK-LABEL: func.func @train_step
// CHECK: %[[X0:.*]] = dist.permute {{.*}} targets [1, -1]
// CHECK: %[[Z0:.*]]:2 = call @layer(%[[X0]], %arg1) : 
// CHECK: %[[X1:.*]] = dist.permute {{.*}} targets [1, -1]
// CHECK: call @layer(%[[X1]], %arg1) {dist.pair = array<i64: 0, 0>}
// CHECK: %[[G0:.*]]:2 = call @layer.backward(%[[X0]], %arg1, %[[Z0]]#1) {dist.pair = array<i64: 0, 1>}
// CHECK: dist.permute %[[G0]]#0 targets [-1, 0]
// CHECK: call @layer({{.*}}) {dist.pair = array<i64: 1, 0>}
// CHECK: %[[G1:.*]]:2 = call @layer.backward({{.*}}) {dist.pair = array<i64: 1, 1>}
// CHECK: %[[S1:.*]] = graph.add %[[G0]]#1, %[[G1]]#1 {dist.pair = array<i64: 1, 1>, graph.microbatch_sum}
// CHECK: %[[G2:.*]]:2 = call @layer.backward({{.*}}) : 
// CHECK: graph.add %[[S1]], %[[G2]]#1 {graph.microbatch_sum} : 

// Each half's sum over the axis tensor is followed by ops of the other.
// WOVEN-LABEL: func.func @train_step
// WOVEN-NOT: dist.pair
// WOVEN: %[[X0:.*]] = dist.permute
// WOVEN: graph.einsum "bk,kn->bn" %[[X0]]
// WOVEN: %[[Z0:.*]] = dist.all_reduce
// WOVEN: %[[X1:.*]] = dist.permute
// WOVEN: %[[Y1:.*]] = graph.einsum "bk,kn->bn" %[[X1]]
// WOVEN: %[[Z1:.*]] = dist.all_reduce sum %[[Y1]]
// WOVEN: %[[D0:.*]] = graph.einsum "bn,kn->bk" %[[Z0]]
// WOVEN: %[[E0:.*]] = dist.all_reduce sum %[[D0]]
// WOVEN: graph.exp %[[Z1]]
// WOVEN: graph.einsum "bk,bn->kn" %[[X0]]
// WOVEN: dist.permute %[[E0]] targets [-1, 0]
func.func @train_step(%xs: tensor<3x2x8xf32> {graph.input = "tokens"}, %a: tensor<8x8xf32> {graph.state = "a"}, %b: tensor<8x8xf32> {graph.state = "b"}) -> (tensor<8x8xf32> {graph.state = "a"}, tensor<8x8xf32> {graph.state = "b"}) {
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:2 = graph.loop 3 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<3x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %y:2 = func.call @layer(%x, %a) {dist.forward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
    %z:2 = func.call @layer(%y#0, %b) {dist.forward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
    %dy:2 = func.call @layer.backward(%y#0, %b, %z#1) {dist.backward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%x, %a, %dy#0) {dist.backward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %a1 = graph.add %sa, %dx#1 : tensor<8x8xf32>
    %b1 = graph.add %sb, %dy#1 : tensor<8x8xf32>
    graph.yield %a1, %b1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  return %sums#0, %sums#1 : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %s = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"tensor">] : tensor<2x8xf32> -> tensor<2x8xf32>
  %z = graph.exp %s : tensor<2x8xf32>
  return %z, %s : tensor<2x8xf32>, tensor<2x8xf32>
}
func.func private @layer.backward(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>, %dy: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>) {
  %dx = graph.einsum "bn,kn->bk" %dy, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %s = dist.all_reduce sum %dx over @mesh [#dist.axis_ref<"tensor">] : tensor<2x8xf32> -> tensor<2x8xf32>
  %dw = graph.einsum "bk,bn->kn" %x, %dy : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  return %s, %dw : tensor<2x8xf32>, tensor<8x8xf32>
}
}
