// RUN: tessera-opt %s --partition-to-local=device=0 --canonicalize --cse --split-input-file | FileCheck %s
// RUN: tessera-opt %s --partition-to-local=device=1 --canonicalize --cse --split-input-file | FileCheck %s --check-prefix=LAST

// The sum of a product whose inner dimension is cut.
// CHECK-LABEL: func.func @all_reduce(%arg0: tensor<6x4xf32> {dist.global_shape = array<i64: 6, 8>, dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}
// CHECK: %[[Y:.*]] = graph.einsum "bk,kn->bn" %arg0, %arg1 : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32>
// CHECK: %[[Z:.*]] = dist.all_reduce sum %[[Y]] over @mesh [#dist.axis_ref<"a">] : tensor<6x5xf32> -> tensor<6x5xf32>
// CHECK: return %[[Z]]
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @all_reduce(%x: tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}, %w: tensor<8x5xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> tensor<6x5xf32> {
  %y = graph.einsum "bk,kn->bn" %x, %w {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"a"}>]} : (tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<6x5xf32>
  %z = dist.reshard %y to <@mesh, [{}, {}]> : tensor<6x5xf32>
  return %z : tensor<6x5xf32>
}

// -----

// The same where the result is cut: of 5 columns one device has 3, the other 2.
// CHECK-LABEL: func.func @reduce_scatter
// CHECK: %[[T:.*]] = graph.transpose %{{.*}} [1, 0] : tensor<6x5xf32> -> tensor<5x6xf32>
// CHECK: dist.reduce_scatter sum %[[T]] dim 0 shares [3, 2] over @mesh [#dist.axis_ref<"a">] : tensor<5x6xf32> -> tensor<3x6xf32>
// LAST-LABEL: func.func @reduce_scatter
// LAST: dist.reduce_scatter sum %{{.*}} dim 0 shares [3, 2] over @mesh [#dist.axis_ref<"a">] : tensor<5x6xf32> -> tensor<2x6xf32>
// LAST: -> tensor<6x2xf32>
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @reduce_scatter(%x: tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}, %w: tensor<8x5xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<6x5xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  %y = graph.einsum "bk,kn->bn" %x, %w {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"a"}>]} : (tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<6x5xf32>
  %z = dist.reshard %y to <@mesh, [{}, {"a"}]> : tensor<6x5xf32>
  return %z : tensor<6x5xf32>
}

// -----

// CHECK-LABEL: func.func @all_gather(%arg0: tensor<4x6xf32>
// CHECK: dist.all_gather %arg0 dim 0 shares [4, 3] over @mesh [#dist.axis_ref<"a">] : tensor<4x6xf32> -> tensor<7x6xf32>
// LAST-LABEL: func.func @all_gather(%arg0: tensor<3x6xf32>
// LAST: dist.all_gather %arg0 dim 0 shares [4, 3] over @mesh [#dist.axis_ref<"a">] : tensor<3x6xf32> -> tensor<7x6xf32>
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @all_gather(%x: tensor<7x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> tensor<7x6xf32> {
  %y = dist.reshard %x to <@mesh, [{}, {}]> : tensor<7x6xf32>
  return %y : tensor<7x6xf32>
}

// -----

// A cut that moves from one dimension to another, in equal pieces.
// CHECK-LABEL: func.func @all_to_all
// CHECK-NOT: all_gather
// CHECK: dist.all_to_all %{{.*}} split 0 join 0 over @mesh [#dist.axis_ref<"a">]
// CHECK-NOT: all_gather
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @all_to_all(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  %y = dist.reshard %x to <@mesh, [{}, {"a"}]> : tensor<8x6xf32>
  return %y : tensor<8x6xf32>
}

// -----

// In unequal pieces it is gathered before it is cut: a device that took its
// columns first would gather rows of other columns.
// CHECK-LABEL: func.func @uneven_exchange
// CHECK: %[[G:.*]] = dist.all_gather %{{.*}} dim 0 shares [3, 2]
// CHECK: graph.embedding
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @uneven_exchange(%x: tensor<5x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<5x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  %y = dist.reshard %x to <@mesh, [{}, {"a"}]> : tensor<5x6xf32>
  return %y : tensor<5x6xf32>
}

// -----

// Where a share begins is an input, so that devices with equal shapes run one
// program.
// CHECK-LABEL: module attributes {dist.offsets = [#dist.factor<6:"a">]}
// CHECK: func.func @slice(%arg0: tensor<6x4xf32>, %[[OFFSETS:.*]]: tensor<1xi32> {graph.input = "mesh.offsets"}) -> (tensor<3x4xf32>
// CHECK: %[[START:.*]] = graph.reshape %[[OFFSETS]] : tensor<1xi32> -> tensor<i32>
// CHECK: graph.embedding %arg0, %{{.*}} : (tensor<6x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @slice(%x: tensor<6x4xf32>) -> (tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %y = dist.reshard %x to <@mesh, [{"a"}, {}]> : tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

// Queries, keys and values side by side, each with half of its heads: a slice
// starts at as many shares as it did at wholes.
// CHECK-LABEL: func.func @heads(%arg0: tensor<4x12xf32>
// CHECK: graph.slice %arg0 [0, 8] : tensor<4x12xf32> -> tensor<4x4xf32>
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @heads(%x: tensor<4x24xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {3, 8:"a"}]>}) -> (tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  %v = graph.slice %x [0, 16] {dist.shardings = [#dist.sharding<@mesh, [{}, {"a"}]>]} : tensor<4x24xf32> -> tensor<4x8xf32>
  return %v : tensor<4x8xf32>
}

// -----

// A table whose rows are cut: rows of other devices count as zeros.
// CHECK-LABEL: func.func @vocabulary(%arg0: tensor<4x2xf32>
// CHECK: %[[ROWS:.*]] = graph.embedding %arg0, %{{.*}} : (tensor<4x2xf32>, tensor<5xi32>) -> tensor<5x2xf32>
// CHECK: %[[OWN:.*]] = graph.select %{{.*}}, %[[ROWS]]
// CHECK: dist.all_reduce sum %[[OWN]]
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @vocabulary(%table: tensor<7x2xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}, %ids: tensor<5xi32>) -> tensor<5x2xf32> {
  %y = graph.embedding %table, %ids {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"a"}>]} : (tensor<7x2xf32>, tensor<5xi32>) -> tensor<5x2xf32>
  %z = dist.reshard %y to <@mesh, [{}, {}]> : tensor<5x2xf32>
  return %z : tensor<5x2xf32>
}

// -----

// Updates are one function for each shape of a share.
// CHECK-LABEL: func.func private @update.local.3
// CHECK: graph.add %arg0, %arg1 : tensor<3xf32>
// CHECK-LABEL: func.func @updates
// CHECK: call @update.local.3(%arg0, %arg0)
// LAST-LABEL: func.func private @update.local.2
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func private @update(%x: tensor<5xf32>, %y: tensor<5xf32>) -> tensor<5xf32> {
  %z = graph.add %x, %y : tensor<5xf32>
  return %z : tensor<5xf32>
}
func.func @updates(%x: tensor<5xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) -> (tensor<5xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) {
  %y = func.call @update(%x, %x) {dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}
