// RUN: tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=2,tensor=2 expert-tensor=1" --verify-shardings | FileCheck %s
// RUN: tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=2,tensor=2 expert-tensor=1" --partition-to-local | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/experts.mlir --assign-shardings="mesh=expert=2,tensor=2 expert-tensor=1" --verify-shardings | FileCheck %s --check-prefix=GATHER
// RUN: tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=2,tensor=2 expert-tensor=2" --verify-shardings | FileCheck %s --check-prefix=WIDTH
// RUN: not tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=expert=2,tensor=3 expert-tensor=1" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=tensor=3 expert-tensor=1" 2>&1 | FileCheck %s --check-prefix=UNEVEN
// RUN: not tessera-opt %S/Inputs/experts-sent.mlir --assign-shardings="mesh=tensor=4 expert-tensor=2" 2>&1 | FileCheck %s --check-prefix=BETWEEN
// RUN: not tessera-opt %S/Inputs/mlp.mlir --assign-shardings="mesh=tensor=2 expert-tensor=1" 2>&1 | FileCheck %s --check-prefix=DENSE
// Experts are distributed over the devices of two axes, and each is whole.

// A device has one of four experts, and numbers the rows of its own half of a sequence.
// CHECK: %arg0: tensor<2x4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert"}, {"tensor"}, {}]>
// CHECK: %arg4: tensor<4x6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert", "tensor"}, {}, {}]>
// CHECK: graph.group_rows %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}], own {"expert", "tensor"}>, #dist.sharding<@mesh, [{2:"expert", 4:"tensor"}, {}], own {"expert", "tensor"}>]}
// CHECK: graph.send_rows {{.*}} {always, dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert", "tensor"}>, #dist.sharding<@mesh, [{}], own {"expert", "tensor"}>]}
// CHECK: graph.grouped_matmul {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"expert", "tensor"}>], transposed}
// CHECK: graph.return_rows {{.*}} {always, dist.shardings = [#dist.sharding<@mesh, [{2:"expert", 8:"tensor"}, {}], own {"expert", "tensor"}>]}
// CHECK: graph.combine_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{2:"expert", 4:"tensor"}, {}]>]}

// Four devices exchange rows: the counts of all, two tokens of each, and room for all eight.
// LOCAL: dist.all_gather %{{.*}} dim 0 over @mesh [#dist.axis_ref<"expert">, #dist.axis_ref<"tensor">] : tensor<1x4xi32> -> tensor<4x4xi32>
// LOCAL: %[[IN:.*]] = dist.exchange_rows %{{.*}} counts %{{.*}} over @mesh [#dist.axis_ref<"expert">, #dist.axis_ref<"tensor">] : tensor<4x6xf32>, tensor<4x4xi32> -> tensor<16x6xf32>
// LOCAL: %[[FIRST:.*]] = graph.slice %{{.*}} [0] : tensor<5xi32> -> tensor<2xi32>
// LOCAL: graph.grouped_matmul %[[IN]], %arg4 groups %[[FIRST]] {transposed} : (tensor<16x6xf32>, tensor<1x6x6xf32>, tensor<2xi32>) -> tensor<16x6xf32>
// LOCAL: dist.exchange_rows %{{.*}} counts %{{.*}} over @mesh [#dist.axis_ref<"expert">, #dist.axis_ref<"tensor">] : tensor<16x6xf32>, tensor<4x4xi32> -> tensor<4x6xf32>
// LOCAL-NOT: dist.all_reduce

// Without an exchange tokens are gathered over `expert` alone: devices along `tensor` have the same.
// GATHER: %arg4: tensor<4x6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert", "tensor"}, {}, {}]>
// GATHER: graph.group_rows %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}], own {"expert", "tensor"}>, #dist.sharding<@mesh, [{}, {}], own {"expert", "tensor"}>]}
// GATHER: graph.combine_rows {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"expert", "tensor"}>]}

// The width of experts is sharded.
// WIDTH: %arg4: tensor<4x6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"expert"}, {"tensor"}, {}]>
// WIDTH: graph.send_rows {{.*}} own {"expert"}>
// WIDTH: graph.grouped_matmul {{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}], own {"expert"}>], transposed}

// FEW: error: mesh option 'expert_tensor': 4 experts are fewer than the 6 devices over which they are distributed; decrease an axis, or leave the option out
// UNEVEN: error: 'graph.send_rows' op cannot exchange rows among 3 devices along 'tensor': experts must divide evenly among them, and each needs a sequence, or tokens if moe.capacity is 0; change the mesh, or set moe.dispatch to auto
// BETWEEN: error: expert-tensor must be 0, 1 or the size of the axis tensor, 4, got: 2
// DENSE: error: mesh option 'expert_tensor': the model has no experts; leave the option out
