// RUN: tessera-opt %s --assign-stages=schedule=gpipe --split-input-file | FileCheck %s
// RUN: tessera-opt %s --assign-stages="schedule=interleaved chunks=2" --split-input-file | FileCheck %s --check-prefix=CHUNKS

// Five blocks, and a head that takes as long as four of them.
// CHECK: module attributes {dist.schedule = "# tessera-schedule name=gpipe stages=2 microbatches=2 replicas=1 placement=0:1\0A0F0,0F1,0B0,0B1\0A1F0,1F1,1B0,1B1\0A"}
// CHUNKS: placement=0:1:0:1
// CHECK-LABEL: func.func @eval_step
// CHECK: call @layer({{.*}}) {dist.forward_stage = 0 : i64
// CHECK: call @layer({{.*}}) {dist.forward_stage = 0 : i64
// CHECK: call @layer({{.*}}) {dist.forward_stage = 0 : i64
// CHECK: call @layer({{.*}}) {dist.forward_stage = 0 : i64
// CHECK: call @layer({{.*}}) {dist.forward_stage = 1 : i64
// CHECK: graph.einsum
// CHUNKS-LABEL: func.func @eval_step
// CHUNKS: forward_stage = 0
// CHUNKS: forward_stage = 1
// CHUNKS: forward_stage = 2
// CHUNKS: forward_stage = 2
// CHUNKS: forward_stage = 3
#p = #graph<role parameter>
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2x8xf32>, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}, %c: tensor<8x8xf32> {graph.role = #p, graph.state = "c"}, %d: tensor<8x8xf32> {graph.role = #p, graph.state = "d"}, %e: tensor<8x8xf32> {graph.role = #p, graph.state = "e"}, %h: tensor<8x32xf32> {graph.role = #p, graph.state = "h"}) -> tensor<2x32xf32> attributes {graph.program = #graph.program<eval_step>} {
  %0 = call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %1 = call @layer(%0, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %2 = call @layer(%1, %c) {graph.layer = #graph.layer<2>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %3 = call @layer(%2, %d) {graph.layer = #graph.layer<3>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %4 = call @layer(%3, %e) {graph.layer = #graph.layer<4>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %5 = graph.einsum "bk,kn->bn" %4, %h : (tensor<2x8xf32>, tensor<8x32xf32>) -> tensor<2x32xf32>
  return %5 : tensor<2x32xf32>
}
// Backward calls have the stages of their layers.
// CHECK-LABEL: func.func @train_step
// CHECK: call @layer({{.*}}) {dist.forward_stage = 0 : i64
// CHECK: call @layer({{.*}}) {dist.forward_stage = 1 : i64
// CHECK: call @layer.backward({{.*}}) {dist.backward_stage = 1 : i64
// CHECK: call @layer.backward({{.*}}) {dist.backward_stage = 0 : i64
func.func @train_step(%xs: tensor<2x2x8xf32>, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}, %c: tensor<8x8xf32> {graph.role = #p, graph.state = "c"}, %d: tensor<8x8xf32> {graph.role = #p, graph.state = "d"}, %e: tensor<8x8xf32> {graph.role = #p, graph.state = "e"}) -> tensor<2x8xf32> attributes {graph.program = #graph.program<train_step>} {
  %zero = graph.constant dense<0.0> : tensor<2x8xf32>
  %sum = graph.loop 2 (%i, %acc = %zero) : (tensor<2x8xf32>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<2x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %0 = func.call @layer(%x, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %1 = func.call @layer(%0, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %2 = func.call @layer(%1, %c) {graph.layer = #graph.layer<2>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %3 = func.call @layer(%2, %d) {graph.layer = #graph.layer<3>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %4 = func.call @layer(%3, %e) {graph.layer = #graph.layer<4>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %g = func.call @layer.backward(%4, %e) {graph.layer = #graph.layer<4, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %f = func.call @layer.backward(%g, %d) {graph.layer = #graph.layer<3, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %next = graph.add %acc, %f : tensor<2x8xf32>
    graph.yield %next : tensor<2x8xf32>
  }
  return %sum : tensor<2x8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
func.func private @layer.backward(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bn,kn->bk" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}
