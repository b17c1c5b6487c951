// RUN: tessera-opt %s --fuse --verify-fused | FileCheck %s

dist.mesh @mesh [#dist.axis<"data" = 2 memory>]

// A collective stands between clusters: what it reads is stored, what reads its
// result starts anew.

// CHECK-LABEL: func @between(
// CHECK:       %[[A:.*]] = graph.cluster elementwise
// CHECK:       %[[R:.*]] = dist.all_reduce sum %[[A]] over @mesh
// CHECK:       %[[B:.*]] = graph.cluster elementwise "{{.*}}"(%[[R]])
// CHECK:       return %[[B]]
func.func @between(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %a = graph.exp %x : tensor<8x4xf32>
  %r = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"data">] : tensor<8x4xf32> -> tensor<8x4xf32>
  %b = graph.exp %r : tensor<8x4xf32>
  return %b : tensor<8x4xf32>
}

// Views reach it as they are, unless planning has no address for them: those
// are stored.

// CHECK-LABEL: func @views(
// CHECK:       %[[V:.*]] = graph.reshape %arg0
// CHECK:       %[[T:.*]] = graph.cluster {{.*}}(%arg0)
// CHECK:       dist.all_gather %[[V]] dim 0
// CHECK:       dist.all_gather %[[T]] dim 0
func.func @views(%x: tensor<8x4xf32>) -> (tensor<4x16xf32>, tensor<8x8xf32>) {
  %v = graph.reshape %x : tensor<8x4xf32> -> tensor<2x16xf32>
  %t = graph.transpose %x [1, 0] : tensor<8x4xf32> -> tensor<4x8xf32>
  %a = dist.all_gather %v dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<2x16xf32> -> tensor<4x16xf32>
  %b = dist.all_gather %t dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<4x8xf32> -> tensor<8x8xf32>
  return %a, %b : tensor<4x16xf32>, tensor<8x8xf32>
}

// Both rows of this softmax's kin would be one cluster, which needs the second
// collective and feeds the first. Ranks whose shares differ in size decide by
// themselves what to fuse, so the order of collectives may follow from nothing
// else than the program's.

// CHECK-LABEL: func @order(
// CHECK:       dist.all_reduce sum %{{.*}} : tensor<8xf32> -> tensor<8xf32>
// CHECK:       dist.all_reduce max %{{.*}} : tensor<8x4xf32> -> tensor<8x4xf32>
// CHECK:       return
func.func @order(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %s = graph.reduce %y sum dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  %a = dist.all_reduce sum %s over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  %b = dist.all_reduce max %x over @mesh [#dist.axis_ref<"data">] : tensor<8x4xf32> -> tensor<8x4xf32>
  %m = graph.mul %b, %y : tensor<8x4xf32>
  %t = graph.reduce %m sum dims [1] : tensor<8x4xf32> -> tensor<8xf32>
  return %a, %t : tensor<8xf32>, tensor<8xf32>
}
