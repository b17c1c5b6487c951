// RUN: tessera-opt %s --fuse --verify-fused | FileCheck %s

// Bias and activation run on the accumulators; what the backward pass keeps is
// a second result.

// CHECK-LABEL: func @epilogue(
// CHECK-NEXT:  %[[C:.*]]:2 = graph.cluster contraction "linear_add_gelu"(%arg0, %arg1, %arg2)
// CHECK:         graph.einsum
// CHECK:         graph.broadcast
// CHECK:         graph.gelu
// CHECK:       return %[[C]]#0, %[[C]]#1
func.func @epilogue(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %u = graph.einsum "mk,kn->mn" %x, %w : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %c = graph.broadcast %b dims [1] : tensor<16xf32> -> tensor<8x16xf32>
  %v = graph.add %u, %c : tensor<8x16xf32>
  %y = graph.gelu %v erf : tensor<8x16xf32>
  return %v, %y : tensor<8x16xf32>, tensor<8x16xf32>
}

// A gradient is added where it accumulates.

// CHECK-LABEL: func @accumulate(
// CHECK:       graph.cluster contraction "linear_add"(%{{.*}}, %[[ACC:.*]]) attributes {accumulates = array<i64: 1, 0>}
func.func @accumulate(%x: tensor<2x8x4xf32>, %z: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %r = graph.loop 2 (%i, %acc = %z) : (tensor<4x4xf32>) {
    %t = graph.dynamic_slice %x[%i] : tensor<2x8x4xf32>, tensor<i32> -> tensor<8x4xf32>
    %d = graph.einsum "mk,mn->kn" %t, %t : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %n = graph.add %acc, %d : tensor<4x4xf32>
    graph.yield %n : tensor<4x4xf32>
  }
  return %r : tensor<4x4xf32>
}

// Of two products the second adds up: the first need not wait for it.

// CHECK-LABEL: func @sumOfProducts(
// CHECK:       %[[FIRST:.*]] = graph.cluster contraction "linear"(%arg0, %arg1)
// CHECK:       graph.cluster contraction "linear_add"(%arg2, %arg3, %[[FIRST]])
func.func @sumOfProducts(%x: tensor<4x8xf32>, %dx: tensor<4x16xf32>, %y: tensor<4x8xf32>, %dy: tensor<4x16xf32>) -> tensor<8x16xf32> {
  %a = graph.einsum "bk,bn->kn" %x, %dx : (tensor<4x8xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %b = graph.einsum "bk,bn->kn" %y, %dy : (tensor<4x8xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %c = graph.add %a, %b : tensor<8x16xf32>
  return %c : tensor<8x16xf32>
}

// What only the statistics of rows and their kin read is left to the rows: here
// it would be a second tensor to store.

// CHECK-LABEL: func @leaveToRows(
// CHECK-NEXT:  %[[L:.*]] = graph.cluster contraction "linear"(%arg0, %arg1)
// CHECK:       graph.cluster row {{.*}}(%[[L]], %arg2)
// CHECK:       return
func.func @leaveToRows(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %g: tensor<16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %u = graph.einsum "mk,kn->mn" %x, %w : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %c = graph.broadcast %g dims [1] : tensor<16xf32> -> tensor<8x16xf32>
  %v = graph.mul %u, %c : tensor<8x16xf32>
  %s = graph.reduce %v sum dims [1] : tensor<8x16xf32> -> tensor<8xf32>
  %b = graph.broadcast %s dims [0] : tensor<8xf32> -> tensor<8x16xf32>
  %y = graph.sub %v, %b : tensor<8x16xf32>
  return %u, %y : tensor<8x16xf32>, tensor<8x16xf32>
}

// Residual sum and norm are one cluster with two results.

// CHECK-LABEL: func @residualNorm(
// CHECK-NEXT:  graph.cluster row "rows_{{.*}}"(%arg0, %arg1) : (tensor<8x16xf32>, tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>)
// CHECK-NOT:   graph.cluster
// CHECK:       return
func.func @residualNorm(%x: tensor<8x16xf32>, %r: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %a = graph.add %x, %r : tensor<8x16xf32>
  %q = graph.mul %a, %a : tensor<8x16xf32>
  %s = graph.reduce %q sum dims [1] : tensor<8x16xf32> -> tensor<8xf32>
  %i = graph.rsqrt %s : tensor<8xf32>
  %b = graph.broadcast %i dims [0] : tensor<8xf32> -> tensor<8x16xf32>
  %y = graph.mul %a, %b : tensor<8x16xf32>
  return %a, %y : tensor<8x16xf32>, tensor<8x16xf32>
}

// Gradients of weight and bias share a cluster, which computes the normalized
// input again instead of reading it.

// CHECK-LABEL: func @columns(
// CHECK:       graph.cluster row
// CHECK:       graph.cluster column {{.*}}(%arg1, %arg0, %{{.*}}) : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>)
// CHECK-NOT:   graph.cluster
// CHECK:       return
func.func @columns(%x: tensor<8x16xf32>, %dy: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %q = graph.mul %x, %x : tensor<8x16xf32>
  %s = graph.reduce %q sum dims [1] : tensor<8x16xf32> -> tensor<8xf32>
  %i = graph.rsqrt %s : tensor<8xf32>
  %b = graph.broadcast %i dims [0] : tensor<8xf32> -> tensor<8x16xf32>
  %h = graph.mul %x, %b : tensor<8x16xf32>
  %p = graph.mul %dy, %h : tensor<8x16xf32>
  %t = graph.reduce %p sum dims [1] : tensor<8x16xf32> -> tensor<8xf32>
  %c = graph.broadcast %t dims [0] : tensor<8xf32> -> tensor<8x16xf32>
  %dx = graph.mul %h, %c : tensor<8x16xf32>
  %dw = graph.reduce %p sum dims [0] : tensor<8x16xf32> -> tensor<16xf32>
  %db = graph.reduce %dy sum dims [0] : tensor<8x16xf32> -> tensor<16xf32>
  return %dx, %dw, %db : tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>
}

// Slices of one projection in front, the concatenation of the gradients behind.

// CHECK-LABEL: func @attentionGrad(
// CHECK-NEXT:  %[[D:.*]] = graph.cluster attention_grad "attention_grad_concat"(%arg0, %arg1, %arg2, %arg3)
// CHECK:       return %[[D]]
func.func @attentionGrad(%qkv: tensor<1x4x24xf32>, %o: tensor<1x4x1x8xf32>, %l: tensor<1x1x4xf32>, %do: tensor<1x4x1x8xf32>) -> tensor<1x4x24xf32> {
  %q0 = graph.slice %qkv [0, 0, 0] : tensor<1x4x24xf32> -> tensor<1x4x8xf32>
  %k0 = graph.slice %qkv [0, 0, 8] : tensor<1x4x24xf32> -> tensor<1x4x8xf32>
  %v0 = graph.slice %qkv [0, 0, 16] : tensor<1x4x24xf32> -> tensor<1x4x8xf32>
  %q = graph.reshape %q0 : tensor<1x4x8xf32> -> tensor<1x4x1x8xf32>
  %k = graph.reshape %k0 : tensor<1x4x8xf32> -> tensor<1x4x1x8xf32>
  %v = graph.reshape %v0 : tensor<1x4x8xf32> -> tensor<1x4x1x8xf32>
  %dq, %dk, %dv = graph.attention_grad %q, %k, %v, %o, %l, %do scale 0.5 {causal} : tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x1x4xf32>, tensor<1x4x1x8xf32>
  %a = graph.reshape %dq : tensor<1x4x1x8xf32> -> tensor<1x4x8xf32>
  %b = graph.reshape %dk : tensor<1x4x1x8xf32> -> tensor<1x4x8xf32>
  %c = graph.reshape %dv : tensor<1x4x1x8xf32> -> tensor<1x4x8xf32>
  %d = graph.concat %a, %b, %c dim 2 : (tensor<1x4x8xf32>, tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x4x24xf32>
  return %d : tensor<1x4x24xf32>
}

// Rows of 17 × 4 do not begin where rows of the product do: a tile of it would
// cross them.

// CHECK-LABEL: func @otherRows(
// CHECK:       %[[P:.*]] = graph.cluster contraction "linear"(%arg0, %arg1)
// CHECK:       graph.cluster elementwise {{.*}}(%[[P]], %arg2)
func.func @otherRows(%x: tensor<1x17x6xf32>, %w: tensor<6x8xf32>, %y: tensor<4x17x4xf32>) -> tensor<1x17x8xf32> {
  %p = graph.einsum "btk,kn->btn" %x, %w : (tensor<1x17x6xf32>, tensor<6x8xf32>) -> tensor<1x17x8xf32>
  %s = graph.slice %y [1, 0, 0] : tensor<4x17x4xf32> -> tensor<2x17x4xf32>
  %r = graph.reshape %s : tensor<2x17x4xf32> -> tensor<1x17x8xf32>
  %a = graph.add %p, %r : tensor<1x17x8xf32>
  return %a : tensor<1x17x8xf32>
}

// A concatenation of one gradient with something else has a kernel of its own.

// CHECK-LABEL: func @oneGradient(
// CHECK-NEXT:  %[[G:.*]]:3 = graph.cluster attention_grad "attention_grad"(
// CHECK:       graph.cluster elementwise "concat"(
func.func @oneGradient(%q: tensor<1x4x1x8xf32>, %l: tensor<1x1x4xf32>, %x: tensor<5xf32>) -> tensor<37xf32> {
  %dq, %dk, %dv = graph.attention_grad %q, %q, %q, %q, %l, %q scale 0.5 {causal} : tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>, tensor<1x1x4xf32>, tensor<1x4x1x8xf32>
  %a = graph.reshape %dv : tensor<1x4x1x8xf32> -> tensor<32xf32>
  %d = graph.concat %x, %a dim 0 : (tensor<5xf32>, tensor<32xf32>) -> tensor<37xf32>
  return %d : tensor<37xf32>
}

// No cluster closes a cycle: the sum waits for the second contraction.

// CHECK-LABEL: func @noCycle(
// CHECK:       %[[A:.*]] = graph.cluster contraction "linear_exp"
// CHECK:       graph.cluster contraction "linear_add"(%[[A]], %arg1)
func.func @noCycle(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %u = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = graph.exp %u : tensor<4x4xf32>
  %v = graph.einsum "mk,kn->mn" %e, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = graph.add %e, %v : tensor<4x4xf32>
  return %s : tensor<4x4xf32>
}

// A table is gathered as it lies: what computes it stays outside.

// CHECK-LABEL: func @gather(
// CHECK:       %[[T:.*]] = graph.cluster elementwise "neg"(%arg0)
// CHECK:       graph.cluster gather "embedding_add"(%[[T]], %arg1, %arg2)
func.func @gather(%t: tensor<9x4xf32>, %i: tensor<3xi32>, %p: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %n = graph.neg %t : tensor<9x4xf32>
  %e = graph.embedding %n, %i : (tensor<9x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  %s = graph.add %e, %p : tensor<3x4xf32>
  return %s : tensor<3x4xf32>
}

// CHECK-LABEL: func @scatter(
// CHECK-NEXT:  graph.cluster scatter "mul_scatter_add"(%arg2, %arg0, %arg1) attributes {accumulates = array<i64: 1, 0>}
func.func @scatter(%b: tensor<9x4xf32>, %i: tensor<3xi32>, %u: tensor<3x4xf32>) -> tensor<9x4xf32> {
  %v = graph.mul %u, %u : tensor<3x4xf32>
  %s = graph.scatter_add %v at %i onto %b : tensor<3x4xf32>, tensor<3xi32>, tensor<9x4xf32>
  return %s : tensor<9x4xf32>
}

// Views that planning has addresses for stay outside; others (with gaps, or not
// from a multiple of 64 bytes) are stored by a cluster.

// CHECK-LABEL: func @views(
// CHECK-DAG:   %[[R:.*]] = graph.reshape %arg0
// CHECK-DAG:   %[[S:.*]] = graph.slice %arg0 [2, 0]
// CHECK-DAG:   %[[U:.*]] = graph.cluster elementwise "slice"(%arg0) : (tensor<4x8xf32>) -> tensor<2x8xf32>
// CHECK-DAG:   %[[G:.*]] = graph.cluster elementwise "slice"(%arg0) : (tensor<4x8xf32>) -> tensor<4x2xf32>
// CHECK-DAG:   %[[T:.*]] = graph.cluster elementwise "transpose"(%arg0)
// CHECK:       return %[[R]], %[[S]], %[[U]], %[[G]], %[[T]]
func.func @views(%x: tensor<4x8xf32>) -> (tensor<32xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<4x2xf32>, tensor<8x4xf32>) {
  %r = graph.reshape %x : tensor<4x8xf32> -> tensor<32xf32>
  %s = graph.slice %x [2, 0] : tensor<4x8xf32> -> tensor<2x8xf32>
  %u = graph.slice %x [1, 0] : tensor<4x8xf32> -> tensor<2x8xf32>
  %g = graph.slice %x [0, 1] : tensor<4x8xf32> -> tensor<4x2xf32>
  %t = graph.transpose %x [1, 0] : tensor<4x8xf32> -> tensor<8x4xf32>
  return %r, %s, %u, %g, %t : tensor<32xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<4x2xf32>, tensor<8x4xf32>
}

// A small tensor that is repeated over a large one is computed once.

// CHECK-LABEL: func @smallOnce(
// CHECK:       %[[E:.*]] = graph.cluster elementwise "exp"(%arg1)
// CHECK:       graph.cluster elementwise "mul"(%arg0, %[[E]])
func.func @smallOnce(%x: tensor<64x16xf32>, %v: tensor<16xf32>) -> tensor<64x16xf32> {
  %e = graph.exp %v : tensor<16xf32>
  %b = graph.broadcast %e dims [1] : tensor<16xf32> -> tensor<64x16xf32>
  %m = graph.mul %x, %b : tensor<64x16xf32>
  return %m : tensor<64x16xf32>
}

// What only the epilogue reads, and what is cheaper to compute than to store,
// is computed there.

// CHECK-LABEL: func @repeatInEpilogue(
// CHECK-NOT:   graph.cluster elementwise
// CHECK:       graph.cluster contraction "linear_mul"(%arg0, %arg1, %arg2) : {{.*}} -> (tensor<8x16xf32>, tensor<8x16xf32>)
// CHECK-DAG:     graph.silu
// CHECK-DAG:     graph.sigmoid
// CHECK:       return
func.func @repeatInEpilogue(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %g: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %a = graph.silu %g : tensor<8x16xf32>
  %b = graph.sigmoid %g : tensor<8x16xf32>
  %c = graph.mul %a, %b : tensor<8x16xf32>
  %u = graph.einsum "mk,kn->mn" %x, %w : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %v = graph.mul %u, %a : tensor<8x16xf32>
  %y = graph.mul %u, %c : tensor<8x16xf32>
  return %v, %y : tensor<8x16xf32>, tensor<8x16xf32>
}

// But not what the contraction itself reads: that is a tensor in memory.

// CHECK-LABEL: func @operandsAreStored(
// CHECK:       %[[S:.*]] = graph.cluster elementwise "silu"(%arg0)
// CHECK:       graph.cluster contraction "linear_add"(%[[S]], %arg1)
func.func @operandsAreStored(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = graph.silu %x : tensor<4x4xf32>
  %u = graph.einsum "mk,kn->mn" %a, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = graph.add %u, %a : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// Rows that a concatenation joins are no row cluster's: the norm reads what the
// rotation stored.

// CHECK-LABEL: func @joinedRows(
// CHECK:       graph.cluster row
// CHECK-NOT:     graph.concat
// CHECK:       graph.cluster elementwise
// CHECK:         graph.concat
// CHECK:       return
func.func @joinedRows(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %q = graph.mul %x, %x : tensor<8x16xf32>
  %s = graph.reduce %q sum dims [1] : tensor<8x16xf32> -> tensor<8xf32>
  %b = graph.broadcast %s dims [0] : tensor<8xf32> -> tensor<8x16xf32>
  %n = graph.mul %x, %b : tensor<8x16xf32>
  %l = graph.slice %n [0, 0] : tensor<8x16xf32> -> tensor<8x8xf32>
  %h = graph.slice %n [0, 8] : tensor<8x16xf32> -> tensor<8x8xf32>
  %m = graph.neg %h : tensor<8x8xf32>
  %c = graph.concat %m, %l dim 1 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x16xf32>
  return %c : tensor<8x16xf32>
}

// A view that only clusters read, which repeat it, needs nothing stored.

// CHECK-LABEL: func @repeatedView(
// CHECK-NOT:   "random"
// CHECK:       graph.cluster elementwise "transpose"(%arg0)
// CHECK:         graph.random
// CHECK:       graph.cluster gather "embedding"
func.func @repeatedView(%seed: tensor<1xi64>, %rows: tensor<2xi32>) -> tensor<2x12xf32> {
  %zero = graph.constant dense<0> : tensor<i64>
  %s = graph.reshape %seed : tensor<1xi64> -> tensor<i64>
  %r = graph.random normal stream 0 seed %s step %zero : tensor<i64>, tensor<i64> -> tensor<4x24xf32>
  %v = graph.reshape %r : tensor<4x24xf32> -> tensor<4x3x8xf32>
  %t = graph.transpose %v [2, 0, 1] : tensor<4x3x8xf32> -> tensor<8x4x3xf32>
  %m = graph.reshape %t : tensor<8x4x3xf32> -> tensor<8x12xf32>
  %y = graph.embedding %m, %rows : (tensor<8x12xf32>, tensor<2xi32>) -> tensor<2x12xf32>
  return %y : tensor<2x12xf32>
}
