// RUN: tessera-opt %s | tessera-opt | FileCheck %s

// CHECK: dist.mesh @mesh [#dist.axis<"data" = 2>, #dist.axis<"tensor" = 4>]
dist.mesh @mesh [#dist.axis<"data" = 2>, #dist.axis<"tensor" = 4>]

// CHECK-LABEL: func.func @global
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [{"data", "tensor":(1)2}, {"tensor":(2)2}]>
func.func @global(%x: tensor<8x16xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
    -> (tensor<8x16xf32> {dist.sharding = #dist.sharding<@mesh, [{"data", "tensor":(1)2}, {"tensor":(2)2}]>}) {
  // CHECK: dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"tensor"}>]
  %sum = graph.add %x, %x {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"tensor"}>]} : tensor<8x16xf32>
  // Cut along an axis, and in an order of each device's own along it and another.
  // CHECK: dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"tensor"}, own {"data"}>]
  %own = graph.add %x, %x {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"tensor"}, own {"data"}>]} : tensor<8x16xf32>
  // CHECK: dist.reshard %{{.*}} to <@mesh, [{"data", "tensor":(1)2}, {"tensor":(2)2}]> : tensor<8x16xf32>
  %y = dist.reshard %sum to <@mesh, [{"data", "tensor":(1)2}, {"tensor":(2)2}]> : tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// CHECK-LABEL: func.func @local
func.func @local(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // CHECK: dist.all_reduce sum %{{.*}} over @mesh [#dist.axis_ref<"tensor">]
  %0 = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"tensor">] : tensor<8x16xf32> -> tensor<8x16xf32>
  // CHECK: dist.all_gather %{{.*}} dim 0 over @mesh [#dist.axis_ref<"data">]
  %1 = dist.all_gather %0 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32> -> tensor<16x16xf32>
  // CHECK: dist.reduce_scatter max %{{.*}} dim 1 over @mesh [#dist.axis_ref<"tensor":(2)2>]
  %2 = dist.reduce_scatter max %1 dim 1 over @mesh [#dist.axis_ref<"tensor":(2)2>] : tensor<16x16xf32> -> tensor<16x8xf32>
  // CHECK: dist.all_to_all %{{.*}} split 0 join 1 over @mesh [#dist.axis_ref<"data">]
  %3 = dist.all_to_all %2 split 0 join 1 over @mesh [#dist.axis_ref<"data">] : tensor<16x8xf32> -> tensor<8x16xf32>
  // A started collective and its end.
  // CHECK: %[[P:.*]] = dist.permute %{{.*}} targets [1, -1] over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32> -> !dist.pending<tensor<8x16xf32>>
  %4 = dist.permute %3 targets [1, -1] over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32> -> !dist.pending<tensor<8x16xf32>>
  // CHECK: dist.wait %[[P]] : <tensor<8x16xf32>> -> tensor<8x16xf32>
  %5 = dist.wait %4 : <tensor<8x16xf32>> -> tensor<8x16xf32>
  return %5 : tensor<8x16xf32>
}

// CHECK-LABEL: func @rows
func.func @rows(%x: tensor<8x16xf32>, %c: tensor<2x2xi32>) -> tensor<16x16xf32> {
  // CHECK: dist.exchange_rows %{{.*}} counts %{{.*}} over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32>, tensor<2x2xi32> -> tensor<16x16xf32>
  %0 = dist.exchange_rows %x counts %c over @mesh [#dist.axis_ref<"data">] : tensor<8x16xf32>, tensor<2x2xi32> -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}

// CHECK-LABEL: func @packs
func.func @packs(%x: tensor<4x2xf32>, %y: tensor<6xf32>) -> (tensor<4x2xf32>, tensor<6xf32>) {
  // CHECK: %[[P:.*]] = dist.pack(%arg0, %arg1) pieces 2 : (tensor<4x2xf32>, tensor<6xf32>) -> tensor<64xf32>
  %p = dist.pack(%x, %y) pieces 2 : (tensor<4x2xf32>, tensor<6xf32>) -> tensor<64xf32>
  // CHECK: dist.unpack %[[P]] pieces 2 : (tensor<64xf32>) -> (tensor<4x2xf32>, tensor<6xf32>)
  %a, %b = dist.unpack %p pieces 2 : (tensor<64xf32>) -> (tensor<4x2xf32>, tensor<6xf32>)
  return %a, %b : tensor<4x2xf32>, tensor<6xf32>
}
