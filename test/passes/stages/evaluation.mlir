// RUN: tessera-opt %s --assign-stages=schedule=1f1b | FileCheck %s --check-prefix=ASSIGN
// RUN: tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=0 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,FIRST
// RUN: tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=1 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,LAST

// An evaluation has the forwards of the schedule.
// ASSIGN-LABEL: func.func @eval_step
// ASSIGN: graph.loop 8
// ASSIGN-SAME: attributes {dist.schedule = "# tessera-schedule name=1f1b stages=2 microbatches=8 replicas=1 placement=0:1 pass=forward\0A0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7\0A1F0,1F1,1F2,1F3,1F4,1F5,1F6,1F7\0A"}
// ASSIGN: call @layer({{.*}}) {dist.forward_stage = 0 : i64
// ASSIGN: call @layer({{.*}}) {dist.forward_stage = 1 : i64

// What a report draws is the step.
// CHECK: module attributes {dist.pipeline = {backward = array<i64: {{[1-9][0-9]*}}, {{[1-9][0-9]*}}>
// The first stage only sends; a count that needs no block keeps its loop.
// CHECK-LABEL: func.func @eval_step
// FIRST: call @layer(
// FIRST: dist.permute {{.*}} targets [1, -1]
// FIRST: %[[N:.*]] = graph.loop 7 (%[[I:.*]], %[[C:.*]] = %{{.*}}) : (tensor<i64>)
// FIRST:   %[[Y:.*]] = func.call @layer(
// FIRST:   graph.add %[[C]],
// FIRST:   dist.permute %[[Y]] targets [1, -1]
// FIRST:   graph.yield
// FIRST-NOT: call
// FIRST: %[[ALL:.*]] = dist.all_reduce sum
// FIRST: %[[L:.*]] = graph.reshape %[[ALL]]
// FIRST: return %[[L]], %[[N]]
// LAST: dist.permute {{.*}} targets [1, -1]
// LAST: call @layer(
// LAST: %[[SUMS:.*]]:2 = graph.loop 7
// LAST:   dist.permute {{.*}} targets [1, -1]
// LAST:   call @layer(
// LAST:   graph.yield
// LAST-NOT: call
// LAST: %[[OWN:.*]] = graph.reshape %[[SUMS]]#
// LAST: dist.all_reduce sum %[[OWN]]
// LAST: return %[[SUMS]]#{{.}}, %[[SUMS]]#
#p = #graph<role parameter>
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%xs: tensor<8x2x8xf32> {graph.input = "tokens"}, %ts: tensor<8x2xi64> {graph.input = "targets"}, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) -> (tensor<f32> {graph.output = "loss_sum"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<eval_step>} {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %none = graph.constant dense<0> : tensor<i64>
  %sums:2 = graph.loop 8 (%i, %s = %zero, %c = %none) : (tensor<f32>, tensor<i64>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<8x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %t = graph.dynamic_slice %ts[%i] : tensor<8x2xi64>, tensor<i32> -> tensor<2xi64>
    %y = func.call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %z = func.call @layer(%y, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %l = graph.reduce %z sum dims [0, 1] : tensor<2x8xf32> -> tensor<f32>
    %n = graph.reduce %t sum dims [0] : tensor<2xi64> -> tensor<i64>
    %s1 = graph.add %s, %l : tensor<f32>
    %c1 = graph.add %c, %n : tensor<i64>
    graph.yield %s1, %c1 : tensor<f32>, tensor<i64>
  }
  return %sums#0, %sums#1 : tensor<f32>, tensor<i64>
}
func.func @train_step(%xs: tensor<8x2x8xf32> {graph.input = "tokens"}, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) -> (tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) attributes {graph.program = #graph.program<train_step>} {
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:2 = graph.loop 8 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<8x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %y = func.call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %z = func.call @layer(%y, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %dy:2 = func.call @layer.backward(%y, %b, %z) {graph.layer = #graph.layer<1, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%x, %a, %dy#0) {graph.layer = #graph.layer<0, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %a1 = graph.add %sa, %dx#1 : tensor<8x8xf32>
    %b1 = graph.add %sb, %dy#1 : tensor<8x8xf32>
    graph.yield %a1, %b1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  %ua = graph.sub %a, %sums#0 : tensor<8x8xf32>
  %ub = graph.sub %b, %sums#1 : tensor<8x8xf32>
  return %ua, %ub : tensor<8x8xf32>, tensor<8x8xf32>
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
