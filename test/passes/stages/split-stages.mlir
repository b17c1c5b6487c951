// RUN: tessera-opt %s --split-stages=device=0 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,FIRST
// RUN: tessera-opt %s --split-stages=device=1 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,LAST

// Two blocks and a table that both ends use, on two ranks.
module attributes {dist.schedule = "0F0,0F1,0B0,0B1\0A1F0,1B0,1F1,1B1\0A"} {
// The head, its gradient included, counts with the last stage; who looks at the
// program later finds the table and what stages take.
// CHECK: module attributes {dist.pipeline = {backward = array<i64: 704, 576>, forward = array<i64: 256, 1920>, schedule = "0F0,0F1,0B0,0B1\0A1F0,1B0,1F1,1B1\0A", weights = array<i64: 0, 0>}} {
// CHECK-NOT: dist.schedule
dist.mesh @mesh [#dist.axis<"pipe" = 2>]

// What the last stage computes all ranks give.
// FIRST-LABEL: func.func @eval_step(%arg0: tensor<2xi32>
// FIRST-SAME: graph.state = "table"
// FIRST-SAME: graph.state = "a"
// FIRST-NOT: graph.state = "b"
// FIRST: %[[X:.*]] = graph.embedding
// FIRST: %[[Y:.*]] = call @layer(%[[X]], %arg2)
// FIRST: dist.permute %[[Y]] targets [1, -1] over @mesh [#dist.axis_ref<"pipe">]
// FIRST: dist.all_reduce sum
// LAST-LABEL: func.func @eval_step
// LAST-NOT: graph.state = "a"
// LAST-SAME: graph.state = "b"
// LAST: %[[Y:.*]] = dist.permute %{{.*}} targets [1, -1]
// LAST: %[[Z:.*]] = call @layer(%[[Y]], %arg2)
// LAST: graph.einsum "bk,nk->bn" %[[Z]], %arg1
// LAST: %[[L:.*]] = graph.reshape %{{.*}} : tensor<f32> -> tensor<1xf32>
// LAST: dist.all_reduce sum %[[L]]
func.func @eval_step(%ids: tensor<2xi32> {graph.input = "tokens"}, %t: tensor<16x8xf32> {graph.state = "table"}, %a: tensor<8x8xf32> {graph.state = "a"}, %b: tensor<8x8xf32> {graph.state = "b"}) -> (tensor<f32> {graph.output = "loss"}) {
  %x = graph.embedding %t, %ids : (tensor<16x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
  %y = call @layer(%x, %a) {dist.forward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %z = call @layer(%y, %b) {dist.forward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %logits = graph.einsum "bk,nk->bn" %z, %t : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
  %loss = graph.reduce %logits sum dims [0, 1] : tensor<2x16xf32> -> tensor<f32>
  return %loss : tensor<f32>
}

// FIRST-LABEL: func.func @train_step
// Forward of both microbatches, then backward as gradients come.
// FIRST: call @layer(
// FIRST: dist.permute {{.*}} targets [1, -1]
// FIRST: call @layer(
// FIRST: dist.permute {{.*}} targets [1, -1]
// FIRST: dist.permute {{.*}} targets [-1, 0]
// FIRST: call @layer.backward(
// FIRST: dist.permute {{.*}} targets [-1, 0]
// FIRST: call @layer.backward(
// LAST-LABEL: func.func @train_step
// LAST: dist.permute {{.*}} targets [1, -1]
// LAST: call @layer(
// LAST: dist.permute {{.*}} targets [1, -1]
// LAST: call @layer.backward(
// LAST: dist.permute {{.*}} targets [-1, 0]
// LAST: call @layer(
// LAST: call @layer.backward(
// LAST: dist.permute {{.*}} targets [-1, 0]
// Both parts of the table's gradient, then the squares of all.
// CHECK: dist.all_reduce sum %{{.*}} : tensor<16x8xf32> -> tensor<16x8xf32>
// FIRST: %[[ALL:.*]] = dist.all_reduce sum %{{.*}} : tensor<2xf32> -> tensor<2xf32>
// FIRST: graph.slice %[[ALL]] [1]
// LAST: graph.concat
// LAST: %[[ALL:.*]] = dist.all_reduce sum %{{.*}} : tensor<2xf32> -> tensor<2xf32>
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}} : tensor<16x8xf32>, tensor<8x8xf32>, tensor<f32>
func.func @train_step(%ids: tensor<2x2xi32> {graph.input = "tokens"}, %t: tensor<16x8xf32> {graph.state = "table"}, %a: tensor<8x8xf32> {graph.state = "a"}, %b: tensor<8x8xf32> {graph.state = "b"}) -> (tensor<16x8xf32> {graph.state = "table"}, tensor<8x8xf32> {graph.state = "a"}, tensor<8x8xf32> {graph.state = "b"}, tensor<f32> {graph.output = "norm"}) {
  %zeroTable = graph.constant dense<0.0> : tensor<16x8xf32>
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %sums:3 = graph.loop 2 (%i, %st = %zeroTable, %sa = %zero, %sb = %zero) : (tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
    %own = graph.dynamic_slice %ids[%i] : tensor<2x2xi32>, tensor<i32> -> tensor<2xi32>
    %x = graph.embedding %t, %own : (tensor<16x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
    %y = func.call @layer(%x, %a) {dist.forward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %z = func.call @layer(%y, %b) {dist.forward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %logits = graph.einsum "bk,nk->bn" %z, %t : (tensor<2x8xf32>, tensor<16x8xf32>) -> tensor<2x16xf32>
    %dt = graph.einsum "bn,bk->nk" %logits, %z : (tensor<2x16xf32>, tensor<2x8xf32>) -> tensor<16x8xf32>
    %dz = graph.einsum "bn,nk->bk" %logits, %t : (tensor<2x16xf32>, tensor<16x8xf32>) -> tensor<2x8xf32>
    %dy:2 = func.call @layer.backward(%y, %b, %dz) {dist.backward_stage = 1 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%x, %a, %dy#0) {dist.backward_stage = 0 : i64} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %t1 = graph.add %st, %dt : tensor<16x8xf32>
    %t2 = graph.scatter_add %dx#0 at %own onto %t1 : tensor<2x8xf32>, tensor<2xi32>, tensor<16x8xf32>
    %a1 = graph.add %sa, %dx#1 : tensor<8x8xf32>
    %b1 = graph.add %sb, %dy#1 : tensor<8x8xf32>
    graph.yield %t2, %a1, %b1 : tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
  }
  %nt = graph.reduce %sums#0 sum dims [0, 1] : tensor<16x8xf32> -> tensor<f32>
  %na = graph.reduce %sums#1 sum dims [0, 1] : tensor<8x8xf32> -> tensor<f32>
  %nb = graph.reduce %sums#2 sum dims [0, 1] : tensor<8x8xf32> -> tensor<f32>
  %n1 = graph.add %nt, %na : tensor<f32>
  %n2 = graph.add %n1, %nb : tensor<f32>
  %ut = graph.sub %t, %sums#0 : tensor<16x8xf32>
  %ua = graph.sub %a, %sums#1 : tensor<8x8xf32>
  %ub = graph.sub %b, %sums#2 : tensor<8x8xf32>
  return %ut, %ua, %ub, %n2 : tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
}

// Of a new model each rank makes what it keeps.
// CHECK-LABEL: func.func @init
// CHECK: return %{{.*}}, %{{.*}} : tensor<16x8xf32>, tensor<8x8xf32>
func.func @init() -> (tensor<16x8xf32> {graph.state = "table"}, tensor<8x8xf32> {graph.state = "a"}, tensor<8x8xf32> {graph.state = "b"}) {
  %t = graph.constant dense<1.0> : tensor<16x8xf32>
  %a = graph.constant dense<2.0> : tensor<8x8xf32>
  %b = graph.constant dense<3.0> : tensor<8x8xf32>
  return %t, %a, %b : tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
func.func private @layer.backward(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>, %dy: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>) {
  %dx = graph.einsum "bn,kn->bk" %dy, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %dw = graph.einsum "bk,bn->kn" %x, %dy : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  return %dx, %dw : tensor<2x8xf32>, tensor<8x8xf32>
}
}
