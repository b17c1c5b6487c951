// RUN: tessera-opt %s --split-stages=device=0 --symbol-dce --canonicalize --cse | FileCheck %s
// RUN: tessera-opt %s --split-stages=device=0 --symbol-dce --canonicalize --cse --unroll-loops | FileCheck %s --check-prefix=UNROLLED

// The first rank keeps six microbatches, five of them between trips of four.
// What a trip carries of the fifth is of the first of the next one.
// CHECK: call @layer(
// CHECK: %[[SUM:.*]]:2 = call @layer.backward(
// CHECK: %[[LOOP:.*]]:6 = graph.loop 3 (%{{.*}}, %{{.*}} = %[[SUM]]#1, {{.*}}, %[[LAST:.*]] = %{{[^)]*}}) : ({{.*}}) attributes {graph.in_flight = 2 : i64} {
// CHECK-COUNT-4: call @layer.backward(
// CHECK: graph.yield %{{.*}}, %[[LAST]], %{{.*}} : tensor<8x8xf32>
// CHECK-COUNT-5: call @layer.backward(
// CHECK-NOT: graph.loop
// One group of two trips is no loop.
// UNROLLED-NOT: graph.loop
// UNROLLED-COUNT-18: call @layer.backward(
// UNROLLED-NOT: graph.loop
#p = #graph<role parameter>
module attributes {dist.schedule = "0F0,0F1,0F2,0F3,0F4,0F5,0B0,0F6,0B1,0F7,0B2,0F8,0B3,0F9,0B4,0F10,0B5,0F11,0B6,0F12,0B7,0F13,0B8,0F14,0B9,0F15,0B10,0F16,0B11,0F17,0B12,0B13,0B14,0B15,0B16,0B17\0A1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5,1F6,1B6,1F7,1B7,1F8,1B8,1F9,1B9,1F10,1B10,1F11,1B11,1F12,1B12,1F13,1B13,1F14,1B14,1F15,1B15,1F16,1B16,1F17,1B17\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%xs: tensor<18x2x8xf32> {graph.input = "tokens"}, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) -> (tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) attributes {graph.program = #graph.program<train_step>} {
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:2 = graph.loop 18 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<18x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %y:2 = func.call @layer(%x, %a) {dist.forward_stage = 0 : i64, graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
    %z:2 = func.call @layer(%y#0, %b) {dist.forward_stage = 1 : i64, graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
    %dy:2 = func.call @layer.backward(%y#0, %b, %z#1, %z#0) {dist.backward_stage = 1 : i64, graph.layer = #graph.layer<1, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%x, %a, %y#1, %dy#0) {dist.backward_stage = 0 : i64, graph.layer = #graph.layer<0, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %a1 = graph.add %sa, %dx#1 : tensor<8x8xf32>
    %b1 = graph.add %sb, %dy#1 : tensor<8x8xf32>
    graph.yield %a1, %b1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  %ua = graph.sub %a, %sums#0 : tensor<8x8xf32>
  %ub = graph.sub %b, %sums#1 : tensor<8x8xf32>
  return %ua, %ub : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %z = graph.exp %y : tensor<2x8xf32>
  return %z, %y : tensor<2x8xf32>, tensor<2x8xf32>
}
func.func private @layer.backward(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>, %y: tensor<2x8xf32>, %dz: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>) {
  %dy = graph.mul %dz, %y : tensor<2x8xf32>
  %dx = graph.einsum "bn,kn->bk" %dy, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %dw = graph.einsum "bk,bn->kn" %x, %dy : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  return %dx, %dw : tensor<2x8xf32>, tensor<8x8xf32>
}
}
