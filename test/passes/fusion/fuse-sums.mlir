// RUN: tessera-opt %s --fuse | FileCheck %s
// Sums over microbatches: each kernel adds its own term and writes the sum, so
// that no term is kept for a later kernel.

// CHECK-LABEL: func @products
// CHECK: graph.loop
// CHECK:   %[[ONE:.*]] = graph.cluster contraction {{.*}}(%{{.*}}, %{{.*}}, %[[SUM:.*]]) attributes {accumulates
// CHECK:   %[[TWO:.*]] = graph.cluster contraction {{.*}}(%{{[^,]*}}, %{{[^,]*}}, %[[ONE]]) :
// CHECK:   graph.yield %[[TWO]]
func.func @products(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %z = graph.constant dense<0.0> : tensor<4x4xf32>
  %r = graph.loop 3 (%i, %acc = %z) : (tensor<4x4xf32>) {
    %p = graph.einsum "mk,kn->mn" %x, %y : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %s = graph.add %acc, %p : tensor<4x4xf32>
    %q = graph.einsum "mk,kn->mn" %y, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %t = graph.add %s, %q : tensor<4x4xf32>
    graph.yield %t : tensor<4x4xf32>
  }
  return %r : tensor<4x4xf32>
}

// The second kernel adds both, because the first sum is small.
// CHECK-LABEL: func @columns
// CHECK: graph.loop
// CHECK:   graph.cluster column "columns_sum"(%arg0)
// CHECK:   graph.cluster column "columns_{{.*}}"({{.*}}%arg1
// CHECK:   graph.yield
func.func @columns(%x: tensor<64x4xf32>, %y: tensor<64x4xf32>) -> tensor<4xf32> {
  %z = graph.constant dense<0.0> : tensor<4xf32>
  %r = graph.loop 3 (%i, %acc = %z) : (tensor<4xf32>) {
    %p = graph.reduce %x sum dims [0] : tensor<64x4xf32> -> tensor<4xf32>
    %s = graph.add %acc, %p : tensor<4xf32>
    %q = graph.reduce %y sum dims [0] : tensor<64x4xf32> -> tensor<4xf32>
    %t = graph.add %s, %q : tensor<4xf32>
    graph.yield %t : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
