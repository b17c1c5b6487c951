// RUN: tessera-opt %s --split-input-file --order-collectives | FileCheck %s

// Gradients start as they become ready, not in the order of parameters; small
// ones that are needed at the end share a number.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  // CHECK-LABEL: func @gradients
  func.func @gradients(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
    %a = graph.cluster row "a" (%x) : (tensor<256x256xf32>) -> tensor<256x256xf32> {
    ^bb0(%i: tensor<256x256xf32>):
      %o = graph.neg %i : tensor<256x256xf32>
      graph.yield %o : tensor<256x256xf32>
    }
    %b = graph.cluster row "b" (%a) : (tensor<256x256xf32>) -> tensor<256x256xf32> {
    ^bb0(%i: tensor<256x256xf32>):
      %o = graph.neg %i : tensor<256x256xf32>
      graph.yield %o : tensor<256x256xf32>
    }
    // CHECK: dist.all_reduce sum %{{.*}} {dist.start = 0 : i64}
    // CHECK: dist.all_reduce sum %{{.*}} {dist.start = 0 : i64}
    %sb = dist.all_reduce sum %b over @mesh [#dist.axis_ref<"data">] : tensor<256x256xf32> -> tensor<256x256xf32>
    %sa = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"data">] : tensor<256x256xf32> -> tensor<256x256xf32>
    return %sb, %sa : tensor<256x256xf32>, tensor<256x256xf32>
  }

  // What is large enough alone stays alone, and starts in the order of its making.
  // CHECK-LABEL: func @large
  func.func @large(%x: tensor<1024x1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
    %a = graph.cluster row "a" (%x) : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
    ^bb0(%i: tensor<1024x1024xf32>):
      %o = graph.neg %i : tensor<1024x1024xf32>
      graph.yield %o : tensor<1024x1024xf32>
    }
    %b = graph.cluster row "b" (%a) : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
    ^bb0(%i: tensor<1024x1024xf32>):
      %o = graph.neg %i : tensor<1024x1024xf32>
      graph.yield %o : tensor<1024x1024xf32>
    }
    // CHECK: dist.all_reduce sum %{{.*}} {dist.start = 1 : i64}
    // CHECK: dist.all_reduce sum %{{.*}} {dist.start = 0 : i64}
    %sb = dist.all_reduce sum %b over @mesh [#dist.axis_ref<"data">] : tensor<1024x1024xf32> -> tensor<1024x1024xf32>
    %sa = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"data">] : tensor<1024x1024xf32> -> tensor<1024x1024xf32>
    return %sb, %sa : tensor<1024x1024xf32>, tensor<1024x1024xf32>
  }

  // A sum that something needs before the next one is there does not wait for
  // it; a maximum is no sum.
  // CHECK-LABEL: func @apart
  func.func @apart(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
    // CHECK: dist.all_reduce sum %{{.*}} {dist.start = 0 : i64}
    %s = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<256x256xf32> -> tensor<256x256xf32>
    %a = graph.cluster row "a" (%s) : (tensor<256x256xf32>) -> tensor<256x256xf32> {
    ^bb0(%i: tensor<256x256xf32>):
      %o = graph.neg %i : tensor<256x256xf32>
      graph.yield %o : tensor<256x256xf32>
    }
    // CHECK: dist.all_reduce sum %{{.*}} {dist.start = 1 : i64}
    // CHECK: dist.all_reduce max %{{.*}} {dist.start = 2 : i64}
    %sa = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"data">] : tensor<256x256xf32> -> tensor<256x256xf32>
    %ma = dist.all_reduce max %a over @mesh [#dist.axis_ref<"data">] : tensor<256x256xf32> -> tensor<256x256xf32>
    return %sa, %ma : tensor<256x256xf32>, tensor<256x256xf32>
  }

  // Shares of different sizes travel alone, exchanges too, in their order.
  // CHECK-LABEL: func @alone
  func.func @alone(%x: tensor<5x4xf32>, %y: tensor<4x4xf32>) -> (tensor<9x4xf32>, tensor<9x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
    // CHECK: dist.all_gather %{{.*}} {dist.start = 2 : i64}
    // CHECK: dist.all_gather %{{.*}} {dist.start = 3 : i64}
    // CHECK: dist.permute %{{.*}} {dist.start = 0 : i64}
    // CHECK: dist.permute %{{.*}} {dist.start = 1 : i64}
    %a = dist.all_gather %x dim 0 shares [5, 4] over @mesh [#dist.axis_ref<"data">] : tensor<5x4xf32> -> tensor<9x4xf32>
    %b = dist.all_gather %x dim 0 shares [5, 4] over @mesh [#dist.axis_ref<"data">] : tensor<5x4xf32> -> tensor<9x4xf32>
    %c = dist.permute %y targets [1, -1] over @mesh [#dist.axis_ref<"data">] : tensor<4x4xf32> -> tensor<4x4xf32>
    %d = dist.permute %y targets [-1, 0] over @mesh [#dist.axis_ref<"data">] : tensor<4x4xf32> -> tensor<4x4xf32>
    return %a, %b, %c, %d : tensor<9x4xf32>, tensor<9x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
  }
}
