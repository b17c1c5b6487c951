// RUN: tessera-opt %S/Inputs/experts.mlir --assign-shardings="mesh=data=2" --verify-shardings | FileCheck %s --check-prefix=DATA
// RUN: tessera-opt %S/Inputs/experts.mlir --assign-shardings="mesh=expert=2" --verify-shardings | FileCheck %s --check-prefix=EXPERT
// RUN: tessera-opt %S/Inputs/experts.mlir --assign-shardings="mesh=expert=2" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// Rows of experts are in an order that each device makes for itself.

// Of its own tokens, with all experts:
// DATA: graph.group_rows %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}], own {"data"}>, #dist.sharding<@mesh, [{"data"}, {}], own {"data"}>]}
// DATA: graph.dispatch_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], own {"data"}>]}
// DATA: graph.grouped_matmul {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], own {"data"}>], transposed}
// DATA: graph.combine_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>]}

// Of all tokens, for its own experts; what they make are parts of sums:
// EXPERT: %arg4: tensor<4x6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert"}, {}, {}]>
// EXPERT: %[[X:.*]] = dist.reshard %{{.*}} to <@mesh, [{}, {}]> : tensor<8x6xf32>
// EXPERT: %[[IDS:.*]] = dist.reshard %{{.*}} to <@mesh, [{}, {}]> : tensor<8x2xi32>
// EXPERT: %{{.*}}, %[[PLACES:.*]] = graph.group_rows %[[IDS]] {dist.shardings = [#dist.sharding<@mesh, [{}], own {"expert"}>, #dist.sharding<@mesh, [{}, {}], own {"expert"}>]}
// EXPERT: graph.dispatch_rows %[[X]] slots %[[PLACES]] {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}>]}
// EXPERT: graph.silu {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}>]}
// EXPERT: %[[Y:.*]] = graph.combine_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"expert"}>]}
// EXPERT: dist.reshard %[[Y]] to <@mesh, [{"expert"}, {}]>

// Two of four experts are the first two groups; choices of others have no place.
// LOCAL: %[[ALL:.*]] = dist.all_gather %{{.*}} dim 0 over @mesh [#dist.axis_ref<"expert">] : tensor<4x2xi32> -> tensor<8x2xi32>
// LOCAL: %[[OWN:.*]] = graph.sub %[[ALL]], %{{.*}} : tensor<8x2xi32>
// LOCAL: graph.select
// LOCAL: %[[IDS:.*]] = graph.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<8x2xi1>, tensor<8x2xi32>
// LOCAL-NEXT: %[[OFFSETS:.*]], %{{.*}} = graph.group_rows %[[IDS]] : (tensor<8x2xi32>) -> (tensor<5xi32>, tensor<8x2xi32>)
// LOCAL: %[[FIRST:.*]] = graph.slice %[[OFFSETS]] [0] : tensor<5xi32> -> tensor<3xi32>
// LOCAL: graph.grouped_matmul %{{.*}}, %arg4 groups %[[FIRST]] {transposed} : (tensor<16x6xf32>, tensor<2x6x6xf32>, tensor<3xi32>) -> tensor<16x6xf32>
// LOCAL: dist.reduce_scatter sum %{{.*}} dim 0 over @mesh [#dist.axis_ref<"expert">] : tensor<8x6xf32> -> tensor<4x6xf32>
