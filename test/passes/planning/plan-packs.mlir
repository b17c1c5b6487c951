// RUN: tessera-opt %s --split-input-file --plan-buffers --verify-plan | FileCheck %s

// Who makes a tensor of a pack makes it there, at a multiple of 64 bytes; what
// another reads too is copied into it, and so is state. Sums are made in the
// pack, and their parts are read where they are.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @f(%block: index, %x: memref<4xf32>, %y: memref<4xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "f",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @sums arena 256 io 192
  // CHECK: %[[P:.*]] = plan.buffer arena at {{.*}} lives [0, 8] : memref<48xf32>
  // CHECK: %[[A:.*]] = plan.view %[[P]] at 0 : memref<48xf32> to memref<4xf32>
  // CHECK: plan.launch @f(%{{.*}}, %[[A]])
  // CHECK: plan.launch @f(%{{.*}}, %[[Y:.*]]) blocks
  // CHECK: %[[B:.*]] = plan.view %[[P]] at 64 : memref<48xf32> to memref<4xf32>
  // CHECK: plan.copy %[[Y]] to %[[B]]
  // CHECK: %[[W:.*]] = plan.view %[[P]] at 128 : memref<48xf32> to memref<4xf32>
  // CHECK: plan.copy %{{.*}} to %[[W]]
  // CHECK: %[[T:.*]] = plan.collective all_reduce %[[P]] to %[[P]] by sum over ["data"] : memref<48xf32> to memref<48xf32> -> !plan.ticket
  // CHECK: plan.launch @f(%[[Y]], %{{.*}})
  // CHECK: plan.wait %[[T]]
  // CHECK: %[[SA:.*]] = plan.view %[[P]] at 0
  // CHECK: plan.launch @f(%[[SA]], %{{.*}})
  // CHECK: %[[SW:.*]] = plan.view %[[P]] at 128
  // CHECK: plan.launch @f(%[[SW]], %{{.*}})
  // CHECK-NOT: plan.copy
  func.func @sums(%x: tensor<4xf32> {graph.input = "x"}, %w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>})
      -> (tensor<4xf32> {graph.output = "a"}, tensor<4xf32> {graph.output = "c"}, tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
    %a = tile.launch @f(%x) blocks [1] sizes [] reuse [0, 0] : (tensor<4xf32>) -> tensor<4xf32>
    %b = tile.launch @f(%x) blocks [1] sizes [] reuse [0, 0] : (tensor<4xf32>) -> tensor<4xf32>
    %p = dist.pack(%a, %b, %w) pieces 1 : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<48xf32>
    %t = dist.all_reduce sum %p over @mesh [#dist.axis_ref<"data">] : tensor<48xf32> -> !dist.pending<tensor<48xf32>>
    %c = tile.launch @f(%b) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
    %s = dist.wait %t : <tensor<48xf32>> -> tensor<48xf32>
    %sa, %sb, %sw = dist.unpack %s pieces 1 : (tensor<48xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    %ra = tile.launch @f(%sa) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
    %rw = tile.launch @f(%sw) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
    return %ra, %c, %rw : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// Pieces are copied one by one, and what is joined is made where it is wanted.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  // CHECK-LABEL: plan.program @pieces
  // CHECK-COUNT-4: plan.copy %{{.*}} to %{{.*}} : memref<2xf32>
  // CHECK: plan.collective reduce_scatter %{{.*}} to %[[S:.*]] by sum over ["data"] counts [32, 32]
  // CHECK: plan.copy %{{.*}} to %{{.*}} : memref<2xf32>
  // CHECK: plan.copy %{{.*}} to %{{.*}} : memref<2xf32>
  // CHECK: plan.collective all_gather %{{.*}} to %{{.*}} over ["data"] counts [32, 32]
  // CHECK-COUNT-4: plan.copy %{{.*}} to %{{.*}} : memref<2xf32>
  // CHECK-NOT: plan.copy
  func.func @pieces(%x: tensor<4xf32> {graph.input = "x"}, %y: tensor<2x2xf32> {graph.input = "y"})
      -> (tensor<4xf32> {graph.output = "a"}, tensor<2x2xf32> {graph.output = "b"}) {
    %p = dist.pack(%x, %y) pieces 2 : (tensor<4xf32>, tensor<2x2xf32>) -> tensor<64xf32>
    %s = dist.reduce_scatter sum %p dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<64xf32> -> tensor<32xf32>
    %sx, %sy = dist.unpack %s pieces 1 : (tensor<32xf32>) -> (tensor<2xf32>, tensor<1x2xf32>)
    %q = dist.pack(%sx, %sy) pieces 1 : (tensor<2xf32>, tensor<1x2xf32>) -> tensor<32xf32>
    %g = dist.all_gather %q dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<32xf32> -> tensor<64xf32>
    %a, %b = dist.unpack %g pieces 2 : (tensor<64xf32>) -> (tensor<4xf32>, tensor<2x2xf32>)
    return %a, %b : tensor<4xf32>, tensor<2x2xf32>
  }
}
