// RUN: tessera-opt %s --plan-buffers --verify-plan | FileCheck %s

// A launch makes a row of a table in the table, also if the row has other readers. State is copied,
// and so is a row that the table has twice, the second time.
module {
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @f(%block: index, %x: memref<16xf32>, %y: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "f",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    tile.kernel @g(%block: index, %x: memref<4xf32>, %y: memref<4xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "g",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    tile.kernel @narrow_table(%block: index, %x: memref<2x4xf32>, %y: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "g",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
    tile.kernel @table(%block: index, %x: memref<4x16xf32>, %y: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "f",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @rows arena 256
  // CHECK: %[[P:.*]] = plan.buffer arena at 0 lives [0, 5] : memref<4x16xf32>
  // CHECK: %[[A:.*]] = plan.view %[[P]] at 0 : memref<4x16xf32> to memref<16xf32>
  // CHECK: plan.launch @f(%{{.*}}, %[[A]])
  // CHECK: %[[B:.*]] = plan.view %[[P]] at 64 : memref<4x16xf32> to memref<16xf32>
  // CHECK: plan.launch @f(%{{.*}}, %[[B]])
  // CHECK: plan.copy %{{.*}} to %{{.*}} : memref<1x16xf32>
  // CHECK: plan.copy %{{.*}} to %{{.*}} : memref<1x16xf32>
  // CHECK: plan.launch @f(
  // CHECK: plan.launch @table(%[[P]], %{{.*}})
  // CHECK-NOT: plan.copy
  func.func @rows(%x: tensor<16xf32> {graph.input = "x"}, %w: tensor<16xf32> {graph.state = "w", graph.role = #graph<role parameter>})
      -> (tensor<16xf32> {graph.output = "a"}, tensor<16xf32> {graph.output = "c"}, tensor<16xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
    %a = tile.launch @f(%x) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
    %ra = graph.reshape %a : tensor<16xf32> -> tensor<1x16xf32>
    %b = tile.launch @f(%a) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
    %rb = graph.reshape %b : tensor<16xf32> -> tensor<1x16xf32>
    %rw = graph.reshape %w : tensor<16xf32> -> tensor<1x16xf32>
    %t = graph.concat %ra, %rb, %rw, %ra dim 0 : (tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>) -> tensor<4x16xf32>
    %c = tile.launch @f(%b) blocks [1] sizes [] : (tensor<16xf32>) -> tensor<16xf32>
    %s = tile.launch @table(%t) blocks [1] sizes [] : (tensor<4x16xf32>) -> tensor<16xf32>
    return %c, %s, %w : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  }  // A row that does not begin at a multiple of 64 bytes is copied.
  // CHECK-LABEL: plan.program @narrow
  // CHECK: plan.launch @g(%{{.*}}, %[[A:.*]]) blocks
  // CHECK: plan.launch @g(%{{.*}}, %[[B:.*]]) blocks
  // CHECK: plan.copy %{{.*}} to %{{.*}} : memref<1x4xf32>
  // CHECK-NOT: plan.copy
  func.func @narrow(%x: tensor<4xf32> {graph.input = "x"}) -> (tensor<16xf32> {graph.output = "a"}) {
    %a = tile.launch @g(%x) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
    %ra = graph.reshape %a : tensor<4xf32> -> tensor<1x4xf32>
    %b = tile.launch @g(%a) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
    %rb = graph.reshape %b : tensor<4xf32> -> tensor<1x4xf32>
    %t = graph.concat %ra, %rb dim 0 : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>
    %s = tile.launch @narrow_table(%t) blocks [1] sizes [] : (tensor<2x4xf32>) -> tensor<16xf32>
    return %s : tensor<16xf32>
  }
}
