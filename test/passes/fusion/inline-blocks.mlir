// RUN: tessera-opt %s --inline-blocks --split-input-file --verify-diagnostics --mlir-print-debuginfo | FileCheck %s

// CHECK-NOT:   func private
// CHECK-LABEL: func @main(
// CHECK-SAME:  %[[X:.*]]: tensor<4xf32>
// CHECK:       %[[A:.*]] = graph.exp %[[X]] : tensor<4xf32> loc(#[[FIRST:.*]])
// CHECK:       %[[B:.*]] = graph.neg %[[A]]
// CHECK:       %[[C:.*]] = graph.exp %[[B]]
// CHECK:       %[[D:.*]] = graph.neg %[[C]]
// CHECK:       graph.loop
// CHECK:         graph.exp
// CHECK-NOT:   call @
// CHECK:       #[[FIRST]] = loc(callsite(#{{.*}} at #{{.*}}))
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = call @layer(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("h.0")
  %b = call @layer(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("h.1")
  %l = graph.loop 2 (%i, %c = %b) : (tensor<4xf32>) {
    %d = func.call @inner(%c) : (tensor<4xf32>) -> tensor<4xf32>
    graph.yield %d : tensor<4xf32>
  }
  return %b, %l : tensor<4xf32>, tensor<4xf32>
}
func.func private @layer(%x: tensor<4xf32>) -> tensor<4xf32> attributes {graph.block} {
  %a = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = graph.neg %a : tensor<4xf32>
  return %b : tensor<4xf32>
}
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = graph.exp %x : tensor<4xf32> loc("attn")
  return %a : tensor<4xf32>
}

// -----

// Each op is of its call's layer.
// CHECK-LABEL: func @layers(
// CHECK:       graph.exp %{{.*}} {graph.layer = #graph.layer<0>}
// CHECK-NEXT:  graph.neg %{{.*}} {graph.layer = #graph.layer<0>}
// CHECK-NEXT:  graph.exp %{{.*}} {graph.layer = #graph.layer<1, backward>}
// CHECK-NEXT:  graph.neg %{{.*}} {graph.layer = #graph.layer<1, backward>}
// CHECK-NEXT:  graph.neg %{{[0-9]*}} :
func.func @layers(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = call @layer(%x) {graph.layer = #graph.layer<0>} : (tensor<4xf32>) -> tensor<4xf32>
  %b = call @layer(%a) {graph.layer = #graph.layer<1, backward>} : (tensor<4xf32>) -> tensor<4xf32>
  %c = graph.neg %b : tensor<4xf32>
  return %c : tensor<4xf32>
}
func.func private @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = graph.exp %x : tensor<4xf32>
  %b = graph.neg %a : tensor<4xf32>
  return %b : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}
// expected-error @+1 {{calls itself: blocks cannot be recursive}}
func.func private @again(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{calls @elsewhere, which has no body to inline}}
  %a = call @elsewhere(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}
func.func private @elsewhere(tensor<4xf32>) -> tensor<4xf32>

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{calls @kernel, which has ops that cannot be inlined}}
  %a = call @kernel(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}
func.func private @kernel(%x: tensor<4xf32>) -> tensor<4xf32> {
  tile.barrier
  return %x : tensor<4xf32>
}

// -----

// And of its call's half of a pair.
// CHECK-LABEL: func @pair(
// CHECK:       graph.exp %{{.*}} {dist.pair = array<i64: 2, 0>}
// CHECK-NEXT:  graph.neg %{{.*}} {dist.pair = array<i64: 2, 0>}
func.func @pair(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = call @layer(%x) {dist.pair = array<i64: 2, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}
func.func private @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = graph.exp %x : tensor<4xf32>
  %b = graph.neg %a : tensor<4xf32>
  return %b : tensor<4xf32>
}
