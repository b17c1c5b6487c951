// RUN: tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=2" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=2" --partition-to-local | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=data=2" --verify-shardings --partition-to-local | FileCheck %s --check-prefix=DATA
// RUN: not tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=3" 2>&1 | FileCheck %s --check-prefix=UNEVEN
// RUN: tessera-opt %S/Inputs/experts-chosen.mlir --assign-shardings="mesh=expert=4" --verify-shardings | FileCheck %s --check-prefix=CHOSEN
// RUN: tessera-opt %S/Inputs/experts-chosen.mlir --assign-shardings="mesh=expert=3" --verify-shardings | FileCheck %s --check-prefix=GATHERED
// Rows of experts go to the devices of their groups and back.

// A device numbers the rows of its own tokens; behind send_rows it has those of its own experts.
// CHECK: %arg4: tensor<4x6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert"}, {}, {}]>
// CHECK-NOT: dist.reshard
// CHECK: graph.group_rows %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}], own {"expert"}>, #dist.sharding<@mesh, [{"expert"}, {}], own {"expert"}>]}
// CHECK: graph.dispatch_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{"expert"}, {}], own {"expert"}>]}
// CHECK: graph.send_rows {{.*}} {always, dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}>, #dist.sharding<@mesh, [{}], own {"expert"}>]}
// CHECK: graph.grouped_matmul {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}>], transposed}
// CHECK: graph.return_rows {{.*}} {always, dist.shardings = [#dist.sharding<@mesh, [{"expert"}, {}], own {"expert"}>]}
// CHECK: graph.combine_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{"expert"}, {}]>]}

// How many of all devices, and then the rows, each to its place: of four tokens two each, and room for all eight tokens'.
// LOCAL: %[[OFFSETS:.*]], %[[PLACES:.*]] = graph.group_rows %{{.*}} : (tensor<4x2xi32>) -> (tensor<5xi32>, tensor<4x2xi32>)
// LOCAL: %[[ROWS:.*]] = graph.dispatch_rows %{{.*}} slots %[[PLACES]] : (tensor<4x6xf32>, tensor<4x2xi32>) -> tensor<8x6xf32>
// LOCAL: dist.all_gather %{{.*}} dim 0 over @mesh [#dist.axis_ref<"expert">] : tensor<1x4xi32> -> tensor<2x4xi32>
// LOCAL-NOT: graph.dispatch_rows
// LOCAL-NOT: graph.group_rows
// LOCAL: %[[IN:.*]] = dist.exchange_rows %[[ROWS]] counts %{{.*}} over @mesh [#dist.axis_ref<"expert">] : tensor<8x6xf32>, tensor<4x4xi32> -> tensor<16x6xf32>
// LOCAL: %[[FIRST:.*]] = graph.slice %{{.*}} [0] : tensor<5xi32> -> tensor<3xi32>
// LOCAL: graph.grouped_matmul %[[IN]], %arg4 groups %[[FIRST]] {transposed}
// LOCAL: %[[HOME:.*]] = dist.exchange_rows %{{.*}} counts %{{.*}} over @mesh [#dist.axis_ref<"expert">] : tensor<16x6xf32>, tensor<4x4xi32> -> tensor<8x6xf32>
// LOCAL-NOT: graph.loop
// LOCAL: graph.combine_rows %[[HOME]] slots %[[PLACES]] weights

// Where no axis cuts experts nothing is left of either.
// DATA: graph.dispatch_rows
// DATA-NOT: dist.
// DATA-NOT: _rows %{{.*}} groups
// DATA: graph.combine_rows

// UNEVEN: error: 'graph.send_rows' op cannot exchange rows among 3 devices along 'expert': experts must divide evenly among them, and each needs a sequence; change the mesh, or set moe.dispatch to auto

// One of eight experts, on four devices: a quarter of the bytes that all tokens are. With three devices experts do not divide.
// CHOSEN: graph.send_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}>,
// CHOSEN: graph.return_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{"expert"}, {}], own {"expert"}>]}
// GATHERED: graph.return_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert"}>]}
// GATHERED: graph.combine_rows {{.*}} partial sum {"expert"}
