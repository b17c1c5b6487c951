// RUN: tessera-opt %s --sink-accumulators | FileCheck %s

// The inner sum starts from the outer one.

// CHECK-LABEL: func @nested(
// CHECK:       graph.loop 2 (%{{.*}}, %[[OUTER:.*]] = %{{.*}})
// CHECK:         %[[R:.*]] = graph.loop 3 (%{{.*}}, %[[INNER:.*]] = %[[OUTER]])
// CHECK:           %[[N:.*]] = graph.add %[[INNER]], %{{.*}}
// CHECK:           graph.yield %[[N]]
// CHECK-NOT:     graph.add
// CHECK:         graph.yield %[[R]]
func.func @nested(%x: tensor<3x8xf32>, %a: tensor<8xf32>) -> tensor<8xf32> {
  %r = graph.loop 2 (%i, %outer = %a) : (tensor<8xf32>) {
    %z = graph.constant dense<0.0> : tensor<8xf32>
    %s = graph.loop 3 (%j, %inner = %z) : (tensor<8xf32>) {
      %t = graph.dynamic_slice %x[%j] : tensor<3x8xf32>, tensor<i32> -> tensor<8xf32>
      %n = graph.add %inner, %t : tensor<8xf32>
      graph.yield %n : tensor<8xf32>
    }
    %m = graph.add %outer, %s : tensor<8xf32>
    graph.yield %m : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func @scatter(
// CHECK:       %[[S:.*]] = graph.scatter_add %{{.*}} at %{{.*}} onto %[[A:.*]] :
// CHECK-NOT:   graph.add
// CHECK:       return %[[S]]
func.func @scatter(%a: tensor<9x4xf32>, %u: tensor<3x4xf32>, %i: tensor<3xi32>) -> tensor<9x4xf32> {
  %z = graph.constant dense<0.0> : tensor<9x4xf32>
  %s = graph.scatter_add %u at %i onto %z : tensor<3x4xf32>, tensor<3xi32>, tensor<9x4xf32>
  %r = graph.add %s, %a : tensor<9x4xf32>
  return %r : tensor<9x4xf32>
}

// A value that the loop passes on as it is.

// CHECK-LABEL: func @passed_on(
// CHECK:       graph.loop
// CHECK:       graph.add
func.func @passed_on(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %z = graph.constant dense<0.0> : tensor<8xf32>
  %s = graph.loop 2 (%i, %same = %z) : (tensor<8xf32>) {
    graph.yield %same : tensor<8xf32>
  }
  %r = graph.add %s, %a : tensor<8xf32>
  return %r : tensor<8xf32>
}

// Not where the loop does more than add, where the sum has other uses, or where
// the base comes later.

// CHECK-LABEL: func @not(
// CHECK-COUNT-3: graph.add %{{.*}}, %{{.*}}#
func.func @not(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %z = graph.constant dense<0.0> : tensor<8xf32>
  %s:3 = graph.loop 3 (%j, %p = %z, %q = %z, %r = %z) : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
    %m = graph.mul %p, %a : tensor<8xf32>
    %n = graph.add %q, %a : tensor<8xf32>
    %o = graph.add %r, %a : tensor<8xf32>
    graph.yield %m, %n, %o : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }
  %t = graph.add %a, %s#0 : tensor<8xf32>
  %u = graph.add %a, %s#1 : tensor<8xf32>
  %later = graph.exp %a : tensor<8xf32>
  %v = graph.add %later, %s#2 : tensor<8xf32>
  return %t, %u, %s#1, %v : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Pieces of a contraction add to the base, one after the other.

// CHECK-LABEL: func @pieces(
// CHECK-SAME:    %[[BASE:.*]]: tensor<4x8xf32>
// CHECK:       %[[A:.*]] = graph.einsum
// CHECK:       %[[B:.*]] = graph.einsum
// CHECK:       %[[FIRST:.*]] = graph.add %[[BASE]], %[[A]]
// CHECK:       %[[BOTH:.*]] = graph.add %[[FIRST]], %[[B]]
// CHECK-NOT:   graph.add
// CHECK:       return %[[BOTH]]
func.func @pieces(%base: tensor<4x8xf32>, %x: tensor<2x4xf32>, %y: tensor<2x4xf32>, %g: tensor<2x8xf32>) -> tensor<4x8xf32> {
  %a = graph.einsum "tn,tm->nm"%x, %g : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %b = graph.einsum "tn,tm->nm"%x, %g : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %sum = graph.add %a, %b : tensor<4x8xf32>
  %r = graph.add %sum, %base : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// Other values keep their order of additions.

// CHECK-LABEL: func @others(
// CHECK-SAME:    %[[BASE:.*]]: tensor<8xf32>, %[[A:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>
// CHECK:       %[[SUM:.*]] = graph.add %[[A]], %[[B]]
// CHECK:       graph.add %[[BASE]], %[[SUM]]
func.func @others(%base: tensor<8xf32>, %a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %sum = graph.add %a, %b : tensor<8xf32>
  %r = graph.add %base, %sum : tensor<8xf32>
  return %r : tensor<8xf32>
}

// Nor a piece that something else reads, or a base that comes after the pieces.

// CHECK-LABEL: func @notPieces(
// CHECK-SAME:    %[[BASE:.*]]: tensor<4x8xf32>
// CHECK:       %[[A:.*]] = graph.einsum
// CHECK:       %[[B:.*]] = graph.einsum
// CHECK:       %[[SUM:.*]] = graph.add %[[A]], %[[B]]
// CHECK:       graph.add %[[BASE]], %[[SUM]]
// CHECK:       %[[C:.*]] = graph.einsum
// CHECK:       %[[D:.*]] = graph.einsum
// CHECK:       %[[OTHER:.*]] = graph.add %[[C]], %[[D]]
// CHECK:       %[[LATER:.*]] = graph.exp
// CHECK:       graph.add %[[LATER]], %[[OTHER]]
func.func @notPieces(%base: tensor<4x8xf32>, %x: tensor<2x4xf32>, %g: tensor<2x8xf32>, %h: tensor<2x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = graph.einsum "tn,tm->nm" %x, %g : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %b = graph.einsum "tn,tm->nm" %x, %h : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %sum = graph.add %a, %b : tensor<4x8xf32>
  %r = graph.add %base, %sum : tensor<4x8xf32>
  %c = graph.einsum "tn,tm->nm" %x, %h : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %d = graph.einsum "tn,tm->nm" %x, %g : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %other = graph.add %c, %d : tensor<4x8xf32>
  %later = graph.exp %base : tensor<4x8xf32>
  %t = graph.add %later, %other : tensor<4x8xf32>
  return %r, %a, %t : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
