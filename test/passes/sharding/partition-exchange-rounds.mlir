// RUN: tessera-opt %S/Inputs/experts-bounded.mlir --add-overflow-rounds --assign-shardings="mesh=expert=2" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/experts-bounded.mlir --add-overflow-rounds --assign-shardings="mesh=expert=2" --partition-to-local --verify-partition | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/experts-bounded.mlir --add-overflow-rounds --assign-shardings="mesh=data=2" --partition-to-local | FileCheck %s --check-prefix=DATA
// RUN: tessera-opt %S/Inputs/experts-bounded.mlir --add-overflow-rounds --decompose-composites | FileCheck %s --check-prefix=ALONE
// Rows that a device has no room for are exchanged in further rounds.

// Of 16 rows a device receives 8 on average: 0.75 of them, rounded up to whole tiles.
// CHECK: graph.send_rows {{.*}} {always, buffer = 7.500000e-01 : f64, dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}, room 8>, #dist.sharding<@mesh, [{}], own {"expert"}>]}
// CHECK: graph.grouped_matmul {{.*}} own {"expert"}, room 8>], transposed}
// CHECK: graph.return_rows {{.*}}[#dist.sharding<@mesh, [{"expert"}, {}], own {"expert"}>]
// CHECK: graph.loop 1 (%{{.*}}, %{{.*}} = %{{.*}}) : (tensor<16x6xf32>) attributes {dist.shardings = [#dist.sharding<@mesh, [{"expert"}, {}], own {"expert"}>], overflow}

// One more round at most. Their number is the first value that the loop carries.
// LOCAL: dist.all_gather {{.*}} : tensor<1x4xi32> -> tensor<2x4xi32>
// LOCAL: dist.exchange_rows {{.*}} : tensor<8x6xf32>, tensor<4x4xi32> -> tensor<8x6xf32>
// LOCAL: %[[FIRST:.*]] = dist.exchange_rows {{.*}} : tensor<8x6xf32>, tensor<4x4xi32> -> tensor<8x6xf32>
// LOCAL: %[[MOST:.*]] = graph.reduce %{{.*}} max dims [0] : tensor<2xi32> -> tensor<i32>
// LOCAL: %[[COUNT:.*]] = graph.reduce %{{.*}} sum dims [0] : tensor<1xi32> -> tensor<i32>
// LOCAL: graph.loop 1 (%{{.*}}, %[[SAME:.*]] = %[[COUNT]], %[[SUM:.*]] = %[[FIRST]]) : (tensor<i32>, tensor<8x6xf32>) attributes {counted} {
// LOCAL-NOT: dist.all_gather
// LOCAL: dist.exchange_rows
// LOCAL: graph.grouped_matmul
// LOCAL: %[[MORE:.*]] = dist.exchange_rows
// LOCAL: %[[ALL:.*]] = graph.add %[[SUM]], %[[MORE]]
// LOCAL: graph.yield %[[SAME]], %[[ALL]]

// Where nothing is exchanged there is one round.
// DATA-NOT: graph.loop
// ALONE-NOT: graph.loop
