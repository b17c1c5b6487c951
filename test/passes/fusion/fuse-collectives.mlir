// RUN: tessera-opt %s --fuse --verify-fused | FileCheck %s

dist.mesh @mesh [#dist.axis<"data" = 2>]

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

// The sum would run on the product's accumulators, in a cluster that needs the
// second collective and feeds the first. Ranks whose shares differ in size
// decide by themselves what to fuse, so the order of collectives may follow from
// nothing else than the program's.

// CHECK-LABEL: func @order(
// CHECK:       %[[U:.*]] = graph.cluster contraction "linear"(%arg0, %arg1)
// CHECK:       %[[R:.*]] = dist.all_reduce sum %[[U]]
// CHECK:       %[[S:.*]] = dist.all_reduce max %arg2
// CHECK:       %[[V:.*]] = graph.cluster elementwise "add"(%[[U]], %[[S]])
// CHECK:       return %[[R]], %[[V]]
func.func @order(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %y: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %u = graph.einsum "mk,kn->mn" %x, %w : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %r = dist.all_reduce sum %u over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32> -> tensor<8x16xf32>
  %s = dist.all_reduce max %y over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32> -> tensor<8x16xf32>
  %v = graph.add %u, %s : tensor<8x16xf32>
  return %r, %v : tensor<8x16xf32>, tensor<8x16xf32>
}

// Sums of columns that read one tensor would share a kernel; but the first is
// sent, and the send would wait for what the second reads.

// CHECK-LABEL: func @columns(
// CHECK:       %[[A:.*]] = graph.cluster column "{{.*}}"(%arg0, %arg2) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4xf32>
// CHECK:       %[[R:.*]] = dist.permute %[[A]]
// CHECK:       %[[B:.*]]:2 = graph.cluster column "{{.*}}"({{.*}}%arg1{{.*}}) : {{.*}} -> (tensor<4xf32>, tensor<4xf32>)
func.func @columns(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %n: tensor<8x4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = graph.mul %x, %n : tensor<8x4xf32>
  %a = graph.reduce %0 sum dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  %r = dist.permute %a targets [1, -1] over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
  %1 = graph.mul %y, %n : tensor<8x4xf32>
  %b = graph.reduce %1 sum dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  %2 = graph.sub %y, %n : tensor<8x4xf32>
  %c = graph.reduce %2 sum dims [0] : tensor<8x4xf32> -> tensor<4xf32>
  return %r, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
