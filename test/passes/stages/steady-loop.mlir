// RUN: tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=0 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,FIRST
// RUN: tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=1 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,LAST
// RUN: tessera-opt %s --assign-stages=schedule=gpipe --split-stages=device=0 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefix=WRITTEN

// Eight microbatches: three trips of two, what comes before and after is written out.
// CHECK: func.func @train_step(%[[XS:.*]]: tensor<8x2x8xf32>{{.*}}graph.input
// The first rank keeps two microbatches. One is in flight between trips: its
// input, and what the block gives.
// FIRST: call @layer(
// FIRST: call @layer(
// FIRST: %[[SUM:.*]]:2 = call @layer.backward(
// FIRST: %[[LOOP:.*]]:3 = graph.loop 3 (%[[I:.*]], %[[A:.*]] = %[[SUM]]#1, %[[X:.*]] = %{{.*}}, %[[Y:.*]] = %{{.*}}) : (tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
// As a number the index is twice the trip, and 2.
// FIRST:   %[[N:.*]] = graph.mul %[[I]], %{{.*}} : tensor<i32>
// FIRST:   graph.add %[[N]], %{{.*}} : tensor<i32>
// Rows 2 to 7 are those of three trips.
// FIRST:   %[[ROWS:.*]] = graph.slice %[[XS]] [2, 0, 0] : tensor<8x2x8xf32> -> tensor<6x2x8xf32>
// FIRST:   %[[TRIPS:.*]] = graph.reshape %[[ROWS]] : tensor<6x2x8xf32> -> tensor<3x2x2x8xf32>
// FIRST:   %[[TRIP:.*]] = graph.dynamic_slice %[[TRIPS]][%[[I]]]
// FIRST:   graph.slice %[[TRIP]] [0, 0, 0] : tensor<2x2x8xf32> -> tensor<1x2x8xf32>
// FIRST:   call @layer(
// FIRST:   dist.permute {{.*}} targets [1, -1]
// FIRST:   dist.permute {{.*}} targets [-1, 0]
// FIRST:   %[[G1:.*]]:2 = func.call @layer.backward(%[[X]], %arg1, %[[Y]], %{{.*}})
// FIRST:   %[[S1:.*]] = graph.add %[[A]], %[[G1]]#1
// FIRST:   graph.slice %[[TRIP]] [1, 0, 0] : tensor<2x2x8xf32> -> tensor<1x2x8xf32>
// FIRST:   call @layer(
// FIRST:   call @layer.backward(
// FIRST:   %[[S2:.*]] = graph.add %[[S1]],
// FIRST:   graph.yield %[[S2]],
// The last backward reads what the loop left.
// FIRST: call @layer.backward(%[[LOOP]]#1, %arg1, %[[LOOP]]#2,
// FIRST: graph.add %[[LOOP]]#0,
// FIRST-NOT: call
// LAST: graph.loop 3
// LAST-COUNT-2: call @layer.backward(
// LAST: graph.yield
// All forwards come before all backwards: nothing repeats.
// WRITTEN-NOT: graph.loop
#p = #graph<role parameter>
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%xs: tensor<8x2x8xf32> {graph.input = "tokens"}, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) -> (tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) attributes {graph.program = #graph.program<train_step>} {
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:2 = graph.loop 8 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %row = graph.dynamic_slice %xs[%i] : tensor<8x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %n = graph.convert %i : tensor<i32> -> tensor<f32>
    %ns = graph.broadcast %n dims [] : tensor<f32> -> tensor<2x8xf32>
    %x = graph.mul %row, %ns : tensor<2x8xf32>
    %y:2 = func.call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
    %z:2 = func.call @layer(%y#0, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
    %dy:2 = func.call @layer.backward(%y#0, %b, %z#1, %z#0) {graph.layer = #graph.layer<1, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%x, %a, %y#1, %dy#0) {graph.layer = #graph.layer<0, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
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
