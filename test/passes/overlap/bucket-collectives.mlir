// RUN: tessera-opt %s --bucket-collectives | FileCheck %s

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]

  // Sums of a pack; offsets are multiples of 64 bytes, so the second tensor is
  // at 16 and the pack has 48 numbers.
  // CHECK-LABEL: func @sums
  // CHECK: %[[P:.*]] = dist.pack(%arg0, %arg1) pieces 1 : (tensor<3xf32>, tensor<5x4xf32>) -> tensor<48xf32>
  // CHECK: %[[S:.*]] = dist.all_reduce  sum %[[P]] over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<48xf32> -> tensor<48xf32>
  // CHECK: %[[U:.*]]:2 = dist.unpack %[[S]] pieces 1 : (tensor<48xf32>) -> (tensor<3xf32>, tensor<5x4xf32>)
  // CHECK: return %[[U]]#0, %[[U]]#1
  func.func @sums(%x: tensor<3xf32>, %y: tensor<5x4xf32>) -> (tensor<3xf32>, tensor<5x4xf32>) {
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<3xf32> -> tensor<3xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<5x4xf32> -> tensor<5x4xf32>
    return %a, %b : tensor<3xf32>, tensor<5x4xf32>
  }

  // A piece for each device where it is scattered, or comes from each.
  // CHECK-LABEL: func @pieces
  // CHECK: %[[P:.*]] = dist.pack(%arg0, %arg1) pieces 2 : (tensor<8xf32>, tensor<4x4xf32>) -> tensor<64xf32>
  // CHECK: %[[S:.*]] = dist.reduce_scatter  sum %[[P]] dim 0 over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<64xf32> -> tensor<32xf32>
  // CHECK: %[[U:.*]]:2 = dist.unpack %[[S]] pieces 1 : (tensor<32xf32>) -> (tensor<4xf32>, tensor<2x4xf32>)
  // CHECK: %[[Q:.*]] = dist.pack(%[[U]]#0, %[[U]]#1) pieces 1 : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<32xf32>
  // CHECK: %[[G:.*]] = dist.all_gather %[[Q]] dim 0 over @mesh [#dist.axis_ref<"data">] {dist.start = 1 : i64} : tensor<32xf32> -> tensor<64xf32>
  // CHECK: %[[V:.*]]:2 = dist.unpack %[[G]] pieces 2 : (tensor<64xf32>) -> (tensor<8xf32>, tensor<4x4xf32>)
  func.func @pieces(%x: tensor<8xf32>, %y: tensor<4x4xf32>) -> (tensor<8xf32>, tensor<4x4xf32>) {
    %a = dist.reduce_scatter sum %x dim 0 over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<8xf32> -> tensor<4xf32>
    %b = dist.reduce_scatter sum %y dim 0 over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4x4xf32> -> tensor<2x4xf32>
    %c = dist.all_gather %a dim 0 over @mesh [#dist.axis_ref<"data">] {dist.start = 1 : i64} : tensor<4xf32> -> tensor<8xf32>
    %d = dist.all_gather %b dim 0 over @mesh [#dist.axis_ref<"data">] {dist.start = 1 : i64} : tensor<2x4xf32> -> tensor<4x4xf32>
    return %c, %d : tensor<8xf32>, tensor<4x4xf32>
  }

  // A move of merged results is placed at its reader: it brings nothing before
  // ops that only the bucket needs.
  // CHECK-LABEL: func @moves
  // CHECK: "own"
  // CHECK: "operand"
  // CHECK: dist.all_reduce
  // CHECK: "joined"
  // CHECK: "reader"
  func.func @moves(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    %joined = graph.cluster elementwise "joined"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<4xf32>, %q: tensor<4xf32>):
      %2 = graph.concat %p, %q dim 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
      graph.yield %2 : tensor<8xf32>
    }
    %own = graph.cluster elementwise "own"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%p: tensor<4xf32>):
      %2 = graph.exp %p : tensor<4xf32>
      graph.yield %2 : tensor<4xf32>
    }
    %operand = graph.cluster reduce_all "operand"(%x) : (tensor<4xf32>) -> tensor<f32> {
    ^bb0(%p: tensor<4xf32>):
      %2 = graph.reduce %p sum dims [0] : tensor<4xf32> -> tensor<f32>
      graph.yield %2 : tensor<f32>
    }
    %b = dist.all_reduce sum %operand over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<f32> -> tensor<f32>
    %reader = graph.cluster elementwise "reader"(%joined, %b) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32> {
    ^bb0(%p: tensor<8xf32>, %q: tensor<f32>):
      %2 = graph.broadcast %q dims [] : tensor<f32> -> tensor<8xf32>
      %3 = graph.mul %p, %2 : tensor<8xf32>
      graph.yield %3 : tensor<8xf32>
    }
    return %own, %reader : tensor<4xf32>, tensor<8xf32>
  }
}
