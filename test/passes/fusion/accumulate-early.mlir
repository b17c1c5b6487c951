// RUN: tessera-opt %s --accumulate-early="bytes=256 distance=1" | FileCheck %s
// The large gradient is added to its sum one cluster after it was reduced, the
// small one at the end of the microbatch.

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  // CHECK-LABEL: func @step
  // CHECK: %[[G:.*]] = dist.reduce_scatter
  // CHECK: graph.cluster elementwise "work"
  // CHECK: %[[SUM:.*]] = graph.cluster elementwise "large"(%{{.*}}, %[[G]])
  // CHECK: graph.cluster elementwise "small"
  // CHECK: graph.yield %[[SUM]]
  func.func @step(%d: tensor<16x16xf32>, %v: tensor<8xf32>, %zero: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>) {
    %r:3 = graph.loop 2 (%i, %a = %zero, %b = %v, %c = %v) : (tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>) {
      %g = dist.reduce_scatter sum %d dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<16x16xf32> -> tensor<8x16xf32>
      %h = dist.all_reduce sum %v over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
      %w = graph.cluster elementwise "work" (%v) : (tensor<8xf32>) -> tensor<8xf32> {
      ^bb0(%x: tensor<8xf32>):
        %o = graph.mul %x, %x : tensor<8xf32>
        graph.yield %o : tensor<8xf32>
      }
      %s = graph.cluster elementwise "small" (%b, %h) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> {
      ^bb0(%x: tensor<8xf32>, %y: tensor<8xf32>):
        %o = graph.add %x, %y : tensor<8xf32>
        graph.yield %o : tensor<8xf32>
      }
      %t = graph.cluster elementwise "large" (%a, %g) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32> {
      ^bb0(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>):
        %o = graph.add %x, %y : tensor<8x16xf32>
        graph.yield %o : tensor<8x16xf32>
      }
      graph.yield %t, %s, %w : tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>
    }
    return %r#0, %r#1, %r#2 : tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>
  }
}
