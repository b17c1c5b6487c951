// RUN: tessera-opt %s --interleave-pairs --split-input-file --verify-diagnostics | FileCheck %s

// As many collectives in both halves: by turns, each followed by what the other
// half computes before its own next one.
// CHECK-LABEL: func.func @equal
// CHECK-NEXT:  %[[C1:.*]] = dist.all_reduce sum %arg0
// CHECK-NEXT:  %[[B1:.*]] = graph.neg %arg1
// CHECK-NEXT:  %[[D1:.*]] = dist.all_reduce sum %[[B1]]
// CHECK-NEXT:  %[[F1:.*]] = graph.exp %[[C1]]
// CHECK-NEXT:  %[[C2:.*]] = dist.all_reduce sum %[[F1]]
// CHECK-NEXT:  %[[B2:.*]] = graph.neg %[[D1]]
// CHECK-NEXT:  %[[D2:.*]] = dist.all_reduce sum %[[B2]]
// CHECK-NEXT:  %[[F2:.*]] = graph.exp %[[C2]]
// CHECK-NEXT:  return %[[F2]], %[[D2]]
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @equal(%x: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c1 = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 0>} : tensor<4xf32> -> tensor<4xf32>
  %f1 = graph.exp %c1 {dist.pair = array<i64: 0, 0>} : tensor<4xf32>
  %c2 = dist.all_reduce sum %f1 over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 0>} : tensor<4xf32> -> tensor<4xf32>
  %f2 = graph.exp %c2 {dist.pair = array<i64: 0, 0>} : tensor<4xf32>
  %b1 = graph.neg %g {dist.pair = array<i64: 0, 1>} : tensor<4xf32>
  %d1 = dist.all_reduce sum %b1 over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 1>} : tensor<4xf32> -> tensor<4xf32>
  %b2 = graph.neg %d1 {dist.pair = array<i64: 0, 1>} : tensor<4xf32>
  %d2 = dist.all_reduce sum %b2 over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 1>} : tensor<4xf32> -> tensor<4xf32>
  return %f2, %d2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Two collectives in one half, none in the other: its ops in two parts, in a
// loop too. An op without a mark is of the half around it.
// CHECK-LABEL: func.func @uneven
// CHECK:       graph.loop
// CHECK-NEXT:    %[[B1:.*]] = graph.neg
// CHECK-NEXT:    %[[D1:.*]] = dist.all_reduce sum %[[B1]]
// CHECK-NEXT:    %[[F1:.*]] = graph.exp
// CHECK-NEXT:    %[[F2:.*]] = graph.exp %[[F1]]
// CHECK-NEXT:    %[[D2:.*]] = dist.all_reduce sum %[[D1]]
// CHECK-NEXT:    %[[F3:.*]] = graph.exp %[[F2]]
// CHECK-NEXT:    %[[F4:.*]] = graph.exp %[[F3]]
// CHECK-NEXT:    graph.yield %[[F4]], %[[D2]]
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @uneven(%x: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %r:2 = graph.loop 2 (%i, %a = %x, %b = %g) : (tensor<4xf32>, tensor<4xf32>) {
    %f1 = graph.exp %a {dist.pair = array<i64: 3, 0>} : tensor<4xf32>
    %f2 = graph.exp %f1 : tensor<4xf32>
    %f3 = graph.exp %f2 : tensor<4xf32>
    %f4 = graph.exp %f3 {dist.pair = array<i64: 3, 0>} : tensor<4xf32>
    %b1 = graph.neg %b {dist.pair = array<i64: 3, 1>} : tensor<4xf32>
    %d1 = dist.all_reduce sum %b1 over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 3, 1>} : tensor<4xf32> -> tensor<4xf32>
    %d2 = dist.all_reduce sum %d1 over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 3, 1>} : tensor<4xf32> -> tensor<4xf32>
    graph.yield %f4, %d2 : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A constant is of neither half, whatever its mark. A value that both read comes
// before both, and each half keeps the order of
// its collectives although the backward needs the second of the forward.
// CHECK-LABEL: func.func @shared
// CHECK-NEXT:  %[[K:.*]] = graph.constant
// CHECK-NEXT:  %[[S:.*]] = graph.mul %arg0, %[[K]]
// CHECK-NEXT:  %[[C1:.*]] = dist.all_reduce sum %[[S]]
// CHECK-NEXT:  %[[C2:.*]] = dist.all_reduce sum %arg1
// CHECK-NEXT:  %[[B:.*]] = graph.add %[[S]], %[[C2]]
// CHECK-NEXT:  %[[D:.*]] = dist.all_reduce sum %[[B]]
// CHECK-NEXT:  return %[[C1]], %[[D]]
// CHECK-NOT:   dist.pair
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @shared(%x: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %k = graph.constant {dist.pair = array<i64: 0, 1>} dense<2.0> : tensor<4xf32>
  %s = graph.mul %x, %k {dist.pair = array<i64: 0, 0>} : tensor<4xf32>
  %c1 = dist.all_reduce sum %s over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 0>} : tensor<4xf32> -> tensor<4xf32>
  %c2 = dist.all_reduce sum %g over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 0>} : tensor<4xf32> -> tensor<4xf32>
  %b = graph.add %s, %c2 {dist.pair = array<i64: 0, 1>} : tensor<4xf32>
  %d = dist.all_reduce sum %b over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 1>} : tensor<4xf32> -> tensor<4xf32>
  return %c1, %d : tensor<4xf32>, tensor<4xf32>
}

// -----

// Further rounds of the forward's collective follow it in its half, but not at
// its turn.
// CHECK-LABEL: func.func @rounds
// CHECK-NEXT:  %[[C:.*]] = dist.all_reduce sum %arg0
// CHECK-NEXT:  %[[B:.*]] = graph.neg %arg1
// CHECK-NEXT:  %[[D:.*]] = dist.all_reduce sum %[[B]]
// CHECK-NEXT:  graph.loop 3 (%{{.*}}, %{{.*}} = %arg2, %{{.*}} = %[[C]])
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @rounds(%x: tensor<4xf32>, %g: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 0>} : tensor<4xf32> -> tensor<4xf32>
  %r:2 = graph.loop 3 (%i, %k = %n, %a = %c) : (tensor<i32>, tensor<4xf32>) attributes {dist.pair = array<i64: 0, 0>, counted} {
    %s = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"tensor">] : tensor<4xf32> -> tensor<4xf32>
    graph.yield %k, %s : tensor<i32>, tensor<4xf32>
  }
  %b = graph.neg %g {dist.pair = array<i64: 0, 1>} : tensor<4xf32>
  %d = dist.all_reduce sum %b over @mesh [#dist.axis_ref<"tensor">] {dist.pair = array<i64: 0, 1>} : tensor<4xf32> -> tensor<4xf32>
  return %r#1, %d : tensor<4xf32>, tensor<4xf32>
}

// -----

func.func @mixed(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = graph.exp %x {dist.pair = array<i64: 7, 1>} : tensor<4xf32>
  // expected-error@+1 {{is of the forward of pair 7, but follows ops of its backward}}
  %b = graph.exp %a {dist.pair = array<i64: 7, 0>} : tensor<4xf32>
  return %b : tensor<4xf32>
}
