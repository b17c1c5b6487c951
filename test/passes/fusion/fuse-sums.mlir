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

// Terms of two microbatches are added in two kernels, so that the first need not
// be kept for the second. If they are small one kernel is cheaper.

// CHECK-LABEL: func @microbatches(
// CHECK:       %[[ONE:.*]] = graph.cluster elementwise "concat_add"(%arg1, %arg2, %arg0)
// CHECK:       graph.cluster elementwise "concat_add"(%arg2, %arg1, %[[ONE]])
// CHECK-NOT:   graph.cluster
func.func @microbatches(%sum: tensor<512x512xf32>, %a: tensor<256x512xf32>, %b: tensor<256x512xf32>) -> tensor<512x512xf32> {
  %one = graph.concat %a, %b dim 0 : (tensor<256x512xf32>, tensor<256x512xf32>) -> tensor<512x512xf32>
  %first = graph.add %sum, %one {graph.microbatch_sum} : tensor<512x512xf32>
  %two = graph.concat %b, %a dim 0 : (tensor<256x512xf32>, tensor<256x512xf32>) -> tensor<512x512xf32>
  %second = graph.add %first, %two {graph.microbatch_sum} : tensor<512x512xf32>
  return %second : tensor<512x512xf32>
}

// CHECK-LABEL: func @small(
// CHECK:       graph.cluster elementwise
// CHECK-NOT:   graph.cluster
func.func @small(%sum: tensor<8xf32>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<8xf32> {
  %one = graph.concat %a, %b dim 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %first = graph.add %sum, %one {graph.microbatch_sum} : tensor<8xf32>
  %two = graph.concat %b, %a dim 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %second = graph.add %first, %two {graph.microbatch_sum} : tensor<8xf32>
  return %second : tensor<8xf32>
}
