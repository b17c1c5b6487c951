// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=3 zero=0" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO0
// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=3 zero=1" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO1
// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=3 zero=2" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO1
// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=3 zero=3" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO3
// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=3 zero=1" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=LOCAL
// RUN: tessera-opt %S/Inputs/update.mlir --assign-shardings="mesh=data=3 zero=3" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=GATHER
// What is kept cut over the data axis (Rajbhandari et al. 2020). A gradient is a
// sum over sequences, so a part of it on every device.

// CHECK-LABEL: func.func @train_step
// The parameter and what an optimizer keeps of it, as they come:
// ZERO0-SAME: %[[W:arg0]]: tensor<6x10xf32> {graph.role = #graph<role parameter>
// ZERO0-SAME: %[[M:arg1]]: tensor<6x10xf32> {graph.role = #graph<role optimizer>
// ZERO1-SAME: %[[W:arg0]]: tensor<6x10xf32> {graph.role = #graph<role parameter>
// ZERO1-SAME: %[[M:arg1]]: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, graph.role = #graph<role optimizer>
// ZERO3-SAME: %[[W:arg0]]: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, graph.role = #graph<role parameter>
// ZERO3-SAME: %[[M:arg1]]: tensor<6x10xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, graph.role = #graph<role optimizer>

// Gathered where it is used:
// ZERO3: %[[ALL:.*]] = dist.reshard %[[W]] to <@mesh, [{}, {}]>
// ZERO3: graph.einsum "btk,kn->btn" %{{.*}}, %[[ALL]]

// CHECK: %[[G:.*]] = graph.einsum "btk,btn->kn" %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"data"}>]}
// ZERO0: %[[SUM:.*]] = dist.reshard %[[G]] to <@mesh, [{}, {}]>
// ZERO0: call @update(%[[W]], %[[SUM]], %[[M]], %{{.*}}) :
// ZERO1: %[[SUM:.*]] = dist.reshard %[[G]] to <@mesh, [{"data"}, {}]>
// ZERO1: %[[OWN:.*]] = dist.reshard %[[W]] to <@mesh, [{"data"}, {}]>
// ZERO1: %[[NEW:.*]]:2 = call @update(%[[OWN]], %[[SUM]], %[[M]], %{{.*}}) {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>, #dist.sharding<@mesh, [{"data"}, {}]>]}
// ZERO1: dist.reshard %[[NEW]]#0 to <@mesh, [{}, {}]>
// ZERO3: %[[SUM:.*]] = dist.reshard %[[G]] to <@mesh, [{"data"}, {}]>
// ZERO3: %[[NEW:.*]]:2 = call @update(%[[W]], %[[SUM]], %[[M]], %{{.*}}) {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>, #dist.sharding<@mesh, [{"data"}, {}]>]}
// ZERO3-NEXT: return %[[NEW]]#0, %[[NEW]]#1

// LOCAL: func.func private @update.local.2x10
// LOCAL-LABEL: func.func @train_step
// LOCAL: %[[G:.*]] = graph.einsum "btk,btn->kn" %{{.*}} : (tensor<2x5x6xf32>, tensor<2x5x10xf32>) -> tensor<6x10xf32>
// LOCAL: %[[SUM:.*]] = dist.reduce_scatter sum %[[G]] dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<6x10xf32> -> tensor<2x10xf32>
// LOCAL: %[[NEW:.*]]:2 = call @update.local.2x10(%{{.*}}, %[[SUM]], %arg1, %{{.*}})
// LOCAL: dist.all_gather %[[NEW]]#0 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<2x10xf32> -> tensor<6x10xf32>

// A device has two rows, gathers all six where they are used, and updates its
// own: nothing is gathered behind the update.
// GATHER-LABEL: func.func @train_step(%arg0: tensor<2x10xf32>
// GATHER: %[[ALL:.*]] = dist.all_gather %arg0 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<2x10xf32> -> tensor<6x10xf32>
// GATHER-NEXT: graph.einsum "btk,kn->btn" %{{.*}}, %[[ALL]]
// GATHER: %[[SUM:.*]] = dist.reduce_scatter sum %{{.*}} dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<6x10xf32> -> tensor<2x10xf32>
// GATHER: %[[NEW:.*]]:2 = call @update.local.2x10(%arg0, %[[SUM]], %arg1, %{{.*}})
// GATHER-NOT: dist.
// GATHER: return %[[NEW]]#0, %[[NEW]]#1 : tensor<2x10xf32>, tensor<2x10xf32>
