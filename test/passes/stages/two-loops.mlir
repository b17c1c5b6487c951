// RUN: tessera-opt %s --assign-stages=schedule=1f1b | FileCheck %s --check-prefix=ASSIGN
// RUN: tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=0 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,FIRST
// RUN: tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=1 --symbol-dce --canonicalize --cse | FileCheck %s --check-prefixes=CHECK,LAST
// RUN: tessera-opt %s --assign-stages=schedule=1f1b -o %t && tessera-opt %t --split-stages=device=0 -o %t.0 && tessera-opt %s --assign-stages=schedule=1f1b --split-stages=device=0 | diff %t.0 -

// Something is counted of all microbatches, and every stage of a step reads it.
// ASSIGN: module attributes {dist.schedule = "# tessera-schedule name=1f1b stages=2 microbatches=2 replicas=1 placement=0:1\0A0F0,0F1,0B0,0B1\0A1F0,1B0,1F1,1B1\0A"}
// ASSIGN: graph.loop 2
// ASSIGN-SAME: attributes {dist.schedule = "# tessera-schedule name=1f1b stages=2 microbatches=2 replicas=1 placement=0:1 pass=forward\0A0F0,0F1\0A1F0,1F1\0A"}
// The first block of the step is of the first stage, also where it is counted.
// ASSIGN: call @count({{.*}}%arg1) {dist.forward_stage = 0 : i64
// ASSIGN: call @count({{.*}}%arg2) {dist.forward_stage = 1 : i64
// ASSIGN: graph.loop 2
// ASSIGN-NOT: dist.schedule
// ASSIGN: call @layer({{.*}}%arg1{{.*}}) {dist.forward_stage = 0 : i64
// ASSIGN: call @layer({{.*}}%arg2{{.*}}) {dist.forward_stage = 1 : i64
// ASSIGN: call @layer.backward({{.*}}%arg2{{.*}}) {dist.backward_stage = 1 : i64
// ASSIGN: call @layer.backward({{.*}}%arg1{{.*}}) {dist.backward_stage = 0 : i64

// CHECK: module attributes {dist.pipeline = {backward = array<i64: {{[1-9][0-9]*}}, {{[1-9][0-9]*}}>, before = [{backward = array<i64: 0, 0>, forward = array<i64: {{[1-9][0-9]*}}, {{[1-9][0-9]*}}>, schedule = "# tessera-schedule {{.*}} pass=forward\0A0F0,0F1\0A1F0,1F1\0A", weights = array<i64: 0, 0>}], forward
// CHECK-LABEL: func.func @train_step
// CHECK-NOT: graph.loop
// Both microbatches are counted before anything else happens.
// FIRST: %[[Y0:.*]]:2 = call @count(%{{.*}}, %arg1)
// FIRST: dist.permute %[[Y0]]#0 targets [1, -1]
// FIRST: %[[Y1:.*]]:2 = call @count(%{{.*}}, %arg1)
// FIRST: dist.permute %[[Y1]]#0 targets [1, -1]
// LAST: %[[X0:.*]] = dist.permute %{{.*}} targets [1, -1]
// LAST: call @count(%[[X0]], %arg1)
// LAST: call @count(
// Counts go to the last stage along with the microbatch; what is made of their sum everybody gets.
// FIRST: %[[ALL:.*]] = dist.all_reduce sum %{{.*}} : tensor<2x8xf32> ->
// LAST: %[[MEAN:.*]] = graph.mul
// LAST: dist.all_reduce sum %[[MEAN]] {{.*}} : tensor<2x8xf32>
// CHECK-NOT: @count
// What both loops compute alike is not kept from one to the other.
// FIRST: %[[E:.*]] = graph.exp
// FIRST: graph.slice %[[ALL]] [0, 0]
// LAST: graph.slice %[[MEAN]] [1, 0]
// FIRST: call @layer(%[[E]]
// FIRST: dist.permute {{.*}} targets [1, -1]
// FIRST: graph.exp
// FIRST: call @layer(
// FIRST: dist.permute {{.*}} targets [1, -1]
// FIRST: call @layer.backward(
// FIRST: call @layer.backward(
// LAST: call @layer(
// LAST: call @layer.backward(
// LAST: call @layer(
// LAST: call @layer.backward(
#p = #graph<role parameter>
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%xs: tensor<2x2x8xf32> {graph.input = "tokens"}, %a: tensor<8x8xf32> {graph.role = #p, graph.state = "a"}, %b: tensor<8x8xf32> {graph.role = #p, graph.state = "b"}) -> (tensor<8x8xf32> {graph.state = "a"}, tensor<8x8xf32> {graph.state = "b"}) attributes {graph.program = #graph.program<train_step>} {
  %none = graph.constant dense<0.0> : tensor<2x8xf32>
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %half = graph.constant dense<0.5> : tensor<2x8xf32>
  %counts = graph.loop 2 (%i, %c = %none) : (tensor<2x8xf32>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<2x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %e = graph.exp %x : tensor<2x8xf32>
    %0:2 = func.call @count(%e, %a) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<8xf32>)
    %1:2 = func.call @count(%0#0, %b) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<8xf32>)
    %c0 = graph.reshape %0#1 : tensor<8xf32> -> tensor<1x8xf32>
    %c1 = graph.reshape %1#1 : tensor<8xf32> -> tensor<1x8xf32>
    %both = graph.concat %c0, %c1 dim 0 : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
    %next = graph.add %c, %both : tensor<2x8xf32>
    graph.yield %next : tensor<2x8xf32>
  }
  %mean = graph.mul %counts, %half : tensor<2x8xf32>
  %sums:2 = graph.loop 2 (%i, %sa = %zero, %sb = %zero) : (tensor<8x8xf32>, tensor<8x8xf32>) {
    %x = graph.dynamic_slice %xs[%i] : tensor<2x2x8xf32>, tensor<i32> -> tensor<2x8xf32>
    %rowa = graph.slice %mean [0, 0] : tensor<2x8xf32> -> tensor<1x8xf32>
    %ca = graph.reshape %rowa : tensor<1x8xf32> -> tensor<8xf32>
    %rowb = graph.slice %mean [1, 0] : tensor<2x8xf32> -> tensor<1x8xf32>
    %cb = graph.reshape %rowb : tensor<1x8xf32> -> tensor<8xf32>
    %e = graph.exp %x : tensor<2x8xf32>
    %y = func.call @layer(%e, %a, %ca) {graph.layer = #graph.layer<0>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
    %z = func.call @layer(%y, %b, %cb) {graph.layer = #graph.layer<1>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
    %dy:2 = func.call @layer.backward(%y, %b, %z) {graph.layer = #graph.layer<1, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %dx:2 = func.call @layer.backward(%e, %a, %dy#0) {graph.layer = #graph.layer<0, backward>} : (tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>)
    %a1 = graph.add %sa, %dx#1 : tensor<8x8xf32>
    %b1 = graph.add %sb, %dy#1 : tensor<8x8xf32>
    graph.yield %a1, %b1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
  %ua = graph.sub %a, %sums#0 : tensor<8x8xf32>
  %ub = graph.sub %b, %sums#1 : tensor<8x8xf32>
  return %ua, %ub : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func private @count(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<8xf32>) {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %n = graph.reduce %y sum dims [0] : tensor<2x8xf32> -> tensor<8xf32>
  return %y, %n : tensor<2x8xf32>, tensor<8xf32>
}
func.func private @layer(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>, %n: tensor<8xf32>) -> tensor<2x8xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %m = graph.broadcast %n dims [1] : tensor<8xf32> -> tensor<2x8xf32>
  %z = graph.add %y, %m : tensor<2x8xf32>
  return %z : tensor<2x8xf32>
}
func.func private @layer.backward(%x: tensor<2x8xf32>, %w: tensor<8x8xf32>, %dy: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>) {
  %dx = graph.einsum "bn,kn->bk" %dy, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %dw = graph.einsum "bk,bn->kn" %x, %dy : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  return %dx, %dw : tensor<2x8xf32>, tensor<8x8xf32>
}
