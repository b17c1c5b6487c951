// RUN: tessera-opt %s --split-input-file --plan-buffers --verify-plan | FileCheck %s

// A sum over ranks takes the place of its part where nobody else reads that;
// state and inputs say of what they are the shares.
module {
  dist.mesh @mesh [#dist.axis<"data" = 3>, #dist.axis<"tensor" = 2>]
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @double(%block: index, %x: memref<4x8xf32>, %y: memref<4x8xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "double",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK: plan.state "w" : memref<4x8xf32> parameter at 0 of [12, 8] cut <@mesh, [{"data"}, {}]>
  // CHECK-LABEL: plan.program @in_place arena 0 io 256
  // CHECK: %[[X:.*]] = plan.buffer io at 0 "x" as input of [12, 8] cut <@mesh, [{"data"}, {}]> : memref<4x8xf32>
  // CHECK: %[[Y:.*]] = plan.buffer io at 128 "y" as output : memref<4x8xf32>
  // CHECK: %[[W:.*]] = plan.buffer state at 0 "w" as parameter : memref<4x8xf32>
  // CHECK: plan.launch @double(%[[X]], %[[Y]])
  // CHECK: plan.collective all_reduce %[[Y]] to %[[Y]] by sum over ["tensor"]
  // CHECK: plan.launch @double(%[[Y]], %[[W]])
  // CHECK: plan.collective all_reduce %[[W]] to %[[W]] by max over ["data", "tensor"]
  // CHECK-NOT: plan.copy
  func.func @in_place(%x: tensor<4x8xf32> {graph.input = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.global_shape = array<i64: 12, 8>},
                      %w: tensor<4x8xf32> {graph.state = "w", graph.role = #graph<role parameter>, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.global_shape = array<i64: 12, 8>})
      -> (tensor<4x8xf32> {graph.output = "y"},
          tensor<4x8xf32> {graph.state = "w", graph.role = #graph<role parameter>, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.global_shape = array<i64: 12, 8>}) {
    %a = tile.launch @double(%x) blocks [1] sizes [] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"tensor">] : tensor<4x8xf32> -> tensor<4x8xf32>
    %b = tile.launch @double(%y) blocks [1] sizes [] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %new = dist.all_reduce max %b over @mesh [#dist.axis_ref<"data">, #dist.axis_ref<"tensor">] : tensor<4x8xf32> -> tensor<4x8xf32>
    return %y, %new : tensor<4x8xf32>, tensor<4x8xf32>
  }
}

// -----

// Who reads the part later keeps it: the sum is made in a copy.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  // CHECK-LABEL: plan.program @copied
  // CHECK: plan.copy %[[X:.*]] to %[[Y:.*]] :
  // CHECK: plan.collective all_reduce %[[Y]] to %[[Y]] by sum over ["data"]
  // CHECK: plan.fill %[[Z:.*]] with 0
  // CHECK: plan.collective all_reduce %[[Z]] to %[[Z]] by sum over ["data"]
  func.func @copied(%x: tensor<8xf32> {graph.input = "x"}) -> (tensor<8xf32> {graph.output = "y"}, tensor<8xf32> {graph.output = "z"}) {
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
    %zero = graph.constant dense<0.0> : tensor<8xf32>
    %z = dist.all_reduce sum %zero over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
    return %y, %z : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// Counts are elements: of uneven shares those that the op lists. Views have
// addresses; dimensions before the first with more than one entry do not count.
module {
  dist.mesh @mesh [#dist.axis<"data" = 3>]
  // CHECK-LABEL: plan.program @counts
  // CHECK: plan.collective all_gather %[[X:.*]] to %[[ALL:.*]] over ["data"] counts [12, 12, 8] : memref<3x4xf32> to memref<8x4xf32>
  // CHECK: plan.collective reduce_scatter %[[ALL]] to %{{.*}} by sum over ["data"] counts [12, 12, 8] : memref<8x4xf32> to memref<3x4xf32>
  // CHECK: %[[V:.*]] = plan.view %[[X]] at 0 : memref<3x4xf32> to memref<1x3x4xf32>
  // CHECK: plan.collective all_to_all %[[V]] to %{{.*}} over ["data"] counts [4, 4, 4]
  // CHECK: plan.collective permute %[[X]] to %{{.*}} over ["data"] targets [1, 2, -1]
  func.func @counts(%x: tensor<3x4xf32> {graph.input = "x"})
      -> (tensor<3x4xf32> {graph.output = "a"}, tensor<1x3x4xf32> {graph.output = "b"}, tensor<3x4xf32> {graph.output = "c"}) {
    %all = dist.all_gather %x dim 0 shares [3, 3, 2] over @mesh [#dist.axis_ref<"data">] : tensor<3x4xf32> -> tensor<8x4xf32>
    %a = dist.reduce_scatter sum %all dim 0 shares [3, 3, 2] over @mesh [#dist.axis_ref<"data">] : tensor<8x4xf32> -> tensor<3x4xf32>
    %v = graph.reshape %x : tensor<3x4xf32> -> tensor<1x3x4xf32>
    %b = dist.all_to_all %v split 1 join 1 over @mesh [#dist.axis_ref<"data">] : tensor<1x3x4xf32> -> tensor<1x3x4xf32>
    %c = dist.permute %x targets [1, 2, -1] over @mesh [#dist.axis_ref<"data">] : tensor<3x4xf32> -> tensor<3x4xf32>
    return %a, %b, %c : tensor<3x4xf32>, tensor<1x3x4xf32>, tensor<3x4xf32>
  }
}

// -----

// Counts of rows are a buffer.
module {
  dist.mesh @mesh [#dist.axis<"expert" = 2>]
  // CHECK-LABEL: plan.program @rows
  // CHECK: plan.collective exchange_rows %{{.*}} to %{{.*}} rows %{{.*}} : memref<2x2xi32> over ["expert"] : memref<3x4xf32> to memref<6x4xf32>
  func.func @rows(%x: tensor<3x4xf32> {graph.input = "x"}, %n: tensor<2x2xi32> {graph.input = "n"}) -> (tensor<6x4xf32> {graph.output = "y"}) {
    %y = dist.exchange_rows %x counts %n over @mesh [#dist.axis_ref<"expert">] : tensor<3x4xf32>, tensor<2x2xi32> -> tensor<6x4xf32>
    return %y : tensor<6x4xf32>
  }
}

// -----

// Counts are read, not overwritten: between two exchanges their buffer is live.
module {
  dist.mesh @mesh [#dist.axis<"expert" = 2>]
  // CHECK-LABEL: plan.program @counted
  // CHECK: %[[N:.*]] = plan.buffer arena at {{[0-9]+}} lives [0, 3] : memref<2x2xi32>
  // CHECK: exchange_rows %{{.*}} to %{{.*}} rows %[[N]]
  // CHECK: exchange_rows %{{.*}} to %{{.*}} rows %[[N]]
  func.func @counted(%x: tensor<3x4xf32> {graph.input = "x"}, %m: tensor<2x2xi32> {graph.input = "m"}) -> (tensor<6x4xf32> {graph.output = "y"}) {
    %n = dist.all_reduce sum %m over @mesh [#dist.axis_ref<"expert">] : tensor<2x2xi32> -> tensor<2x2xi32>
    %a = dist.exchange_rows %x counts %n over @mesh [#dist.axis_ref<"expert">] : tensor<3x4xf32>, tensor<2x2xi32> -> tensor<6x4xf32>
    %y = dist.exchange_rows %a counts %n over @mesh [#dist.axis_ref<"expert">] : tensor<6x4xf32>, tensor<2x2xi32> -> tensor<6x4xf32>
    return %y : tensor<6x4xf32>
  }
}

// -----

// What is under way is in nobody's way: until the wait, neither the part nor
// the place of the whole is given to others.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @f(%block: index, %n: index, %x: memref<?xf32>, %y: memref<?xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, dynamic_sizes = 1 : i64, summary = "f",
                    access = [#tile<access read>, #tile<access write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @started arena 256 io 128
  // CHECK-DAG: %[[X:.*]] = plan.buffer io at 0 "x"
  // CHECK-DAG: %[[Y:.*]] = plan.buffer io at 64 "y"
  // CHECK-DAG: %[[A:.*]] = plan.buffer arena at {{.*}} lives [0, 3] : memref<16xf32>
  // CHECK-DAG: %[[ALL:.*]] = plan.buffer arena at {{.*}} lives [1, 4] : memref<32xf32>
  // CHECK-DAG: %[[B:.*]] = plan.buffer arena at {{.*}} lives [2, 5] : memref<16xf32>
  // CHECK: plan.launch @f(%[[X]], %[[A]])
  // CHECK: %[[T:.*]] = plan.collective all_gather %[[A]] to %[[ALL]] over ["data"] counts [16, 16] : memref<16xf32> to memref<32xf32> -> !plan.ticket
  // CHECK: plan.launch @f(%[[A]], %[[B]])
  // CHECK: plan.wait %[[T]]
  // CHECK: plan.launch @f(%[[ALL]], %[[ALL]])
  // CHECK: plan.launch @f(%[[B]], %[[Y]])
  func.func @started(%x: tensor<16xf32> {graph.input = "x"}) -> (tensor<16xf32> {graph.output = "y"}) {
    %a = tile.launch @f(%x) blocks [1] sizes [16] reuse [0, 0] : (tensor<16xf32>) -> tensor<16xf32>
    %t = dist.all_gather %a dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<16xf32> -> !dist.pending<tensor<32xf32>>
    %b = tile.launch @f(%a) blocks [1] sizes [16] reuse [0, 0] : (tensor<16xf32>) -> tensor<16xf32>
    %all = dist.wait %t : <tensor<32xf32>> -> tensor<32xf32>
    %c = tile.launch @f(%all) blocks [1] sizes [32] reuse [0, 0] : (tensor<32xf32>) -> tensor<32xf32>
    %y = tile.launch @f(%b) blocks [1] sizes [16] reuse [0, 0] : (tensor<16xf32>) -> tensor<16xf32>
    return %y : tensor<16xf32>
  }
}

// -----

// Where it is wanted, too: a sum that is started in the place of state, and one
// in the turns of a loop, on a copy of the input's part.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  module @cpu attributes {tile.target = "cpu:avx2"} {
    tile.kernel @accumulate(%block: index, %x: memref<16xf32>, %sum: memref<16xf32>)
        attributes {skeleton = #tile<skeleton elementwise>, summary = "accumulate",
                    access = [#tile<access read>, #tile<access read_write>]} {
      tile.return
    }
  }
  // CHECK-LABEL: plan.program @wanted
  // CHECK: %[[W:.*]] = plan.buffer state at 0 "w"
  // CHECK: plan.fill %[[ACC:.*]] with 0
  // CHECK: plan.loop %[[I:.*]] to 4 {
  // CHECK:   %[[PART:.*]] = plan.view %{{.*}} at 0 plus %[[I]] times 64 : memref<4x16xf32> to memref<16xf32>
  // CHECK:   plan.copy %[[PART]] to %[[SUM:.*]] :
  // CHECK:   plan.collective all_reduce %[[SUM]] to %[[SUM]] by sum over ["data"]
  // CHECK:   plan.launch @accumulate(%[[SUM]], %[[ACC]])
  // CHECK: }
  // CHECK-NOT: plan.copy
  // CHECK: plan.launch @accumulate(%[[ACC]], %[[W]])
  // CHECK: %[[T:.*]] = plan.collective all_reduce %[[W]] to %[[W]] by sum over ["data"] : memref<16xf32> to memref<16xf32> -> !plan.ticket
  // CHECK: plan.wait %[[T]]
  // CHECK-NOT: plan.copy
  func.func @wanted(%x: tensor<4x16xf32> {graph.input = "x"}, %w: tensor<16xf32> {graph.state = "w", graph.role = #graph<role parameter>})
      -> (tensor<16xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
    %zero = graph.constant dense<0.0> : tensor<16xf32>
    %sum = graph.loop 4 (%i, %acc = %zero) : (tensor<16xf32>) {
      %part = graph.dynamic_slice %x[%i] : tensor<4x16xf32>, tensor<i32> -> tensor<16xf32>
      %all = dist.all_reduce sum %part over @mesh [#dist.axis_ref<"data">] : tensor<16xf32> -> tensor<16xf32>
      %next = tile.launch @accumulate(%all, %acc) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      graph.yield %next : tensor<16xf32>
    }
    %more = tile.launch @accumulate(%sum, %w) blocks [1] sizes [] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %t = dist.all_reduce sum %more over @mesh [#dist.axis_ref<"data">] : tensor<16xf32> -> !dist.pending<tensor<16xf32>>
    %new = dist.wait %t : <tensor<16xf32>> -> tensor<16xf32>
    return %new : tensor<16xf32>
  }
}
