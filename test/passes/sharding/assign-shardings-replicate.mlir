// RUN: tessera-opt %s --assign-shardings="mesh=replicate=2,data=3 zero=1" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO1
// RUN: tessera-opt %s --assign-shardings="mesh=replicate=2,data=3 zero=2" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO2
// RUN: tessera-opt %s --assign-shardings="mesh=replicate=2,data=3 zero=3" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ZERO3
// RUN: tessera-opt %s --assign-shardings="mesh=replicate=2,data=3 zero=1" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=ONCE
// RUN: tessera-opt %s --assign-shardings="mesh=replicate=2,data=3 zero=3" --partition-to-local --canonicalize --cse | FileCheck %s --check-prefix=EACH
// Hybrid sharding: sequences are divided among all devices, state among those of
// a replica. A sum over microbatches stays partial over replicas until the loop
// has ended, whether or not microbatches are summed over data.

// Both axes shard sequences, replicas first; none shards state over replicas:
// CHECK-LABEL: func.func @train_step
// ZERO1-SAME: %[[W:arg0]]: tensor<6x6xf32> {graph.role = #graph<role parameter>
// ZERO2-SAME: %[[W:arg0]]: tensor<6x6xf32> {graph.role = #graph<role parameter>
// ZERO3-SAME: %[[W:arg0]]: tensor<6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK-SAME: %[[M:arg1]]: tensor<6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK-SAME: tensor<2x6x5xi32> {dist.sharding = #dist.sharding<@mesh, [{}, {"replicate", "data"}, {}]>

// CHECK: %[[G:.*]] = graph.loop 2
// ZERO3: dist.reshard %[[W]] to <@mesh, [{}, {}]>
// CHECK: %[[P:.*]] = graph.einsum "bk,bn->kn" %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"replicate", "data"}>]}
// ZERO1: graph.add %{{.*}}, %[[P]] {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"replicate", "data"}>]}
// ZERO2: %[[S:.*]] = dist.reshard %[[P]] to <@mesh, [{"data"}, {}], partial sum {"replicate"}>
// ZERO2: graph.add %{{.*}}, %[[S]] {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"replicate"}>]}
// ZERO3: %[[S:.*]] = dist.reshard %[[P]] to <@mesh, [{"data"}, {}], partial sum {"replicate"}>
// ZERO3: graph.add %{{.*}}, %[[S]] {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"replicate"}>]}
// CHECK: }
// CHECK: %[[SUM:.*]] = dist.reshard %[[G]] to <@mesh, [{"data"}, {}]>
// CHECK: call @update(%{{.*}}, %[[SUM]], %[[M]])

// The shard alone goes to other replicas:
// ONCE-LABEL: func.func @train_step
// ONCE: graph.loop 2
// ONCE-NOT: dist.
// ONCE: graph.yield
// ONCE: %[[S:.*]] = dist.reduce_scatter sum %{{.*}} dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<6x6xf32> -> tensor<2x6xf32>
// ONCE: %[[SUM:.*]] = dist.all_reduce sum %[[S]] over @mesh [#dist.axis_ref<"replicate">] : tensor<2x6xf32>
// ONCE: call @update.local.2x6(%{{.*}}, %[[SUM]], %arg1)

// EACH-LABEL: func.func @train_step
// EACH: %[[G:.*]] = graph.loop 2
// EACH-NOT: #dist.axis_ref<"replicate">
// EACH: dist.all_gather %arg0 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<2x6xf32> -> tensor<6x6xf32>
// EACH-NOT: #dist.axis_ref<"replicate">
// EACH: dist.reduce_scatter sum %{{.*}} dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<6x6xf32> -> tensor<2x6xf32>
// EACH-NOT: #dist.axis_ref<"replicate">
// EACH: graph.yield
// EACH: %[[SUM:.*]] = dist.all_reduce sum %[[G]] over @mesh [#dist.axis_ref<"replicate">] : tensor<2x6xf32>
// EACH: call @update.local.2x6(%arg0, %[[SUM]], %arg1)
func.func private @update(%w: tensor<6x6xf32>, %g: tensor<6x6xf32>, %m: tensor<6x6xf32>) -> (tensor<6x6xf32>, tensor<6x6xf32>) {
  %n = graph.add %m, %g : tensor<6x6xf32>
  %v = graph.sub %w, %n : tensor<6x6xf32>
  return %v, %n : tensor<6x6xf32>, tensor<6x6xf32>
}

func.func @train_step(%w: tensor<6x6xf32> {graph.role = #graph<role parameter>, graph.state = "w"},
                      %m: tensor<6x6xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum"},
                      %table: tensor<9x6xf32> {graph.input = "table"}, %tokens: tensor<2x6x5xi32> {graph.input = "tokens"})
    -> (tensor<6x6xf32> {graph.role = #graph<role parameter>, graph.state = "w"}, tensor<6x6xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum"}) attributes {graph.program = #graph.program<train_step>} {
  %zero = graph.constant dense<0.0> : tensor<6x6xf32>
  %g = graph.loop 2 (%i, %sum = %zero) : (tensor<6x6xf32>) {
    %batch = graph.dynamic_slice %tokens[%i] : tensor<2x6x5xi32>, tensor<i32> -> tensor<6x5xi32>
    %rows = graph.embedding %table, %batch : (tensor<9x6xf32>, tensor<6x5xi32>) -> tensor<6x5x6xf32>
    %x = graph.reshape %rows : tensor<6x5x6xf32> -> tensor<30x6xf32>
    %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<30x6xf32>, tensor<6x6xf32>) -> tensor<30x6xf32>
    %p = graph.einsum "bk,bn->kn" %x, %y : (tensor<30x6xf32>, tensor<30x6xf32>) -> tensor<6x6xf32>
    %next = graph.add %sum, %p : tensor<6x6xf32>
    graph.yield %next : tensor<6x6xf32>
  }
  %r:2 = func.call @update(%w, %g, %m) : (tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>) -> (tensor<6x6xf32>, tensor<6x6xf32>)
  return %r#0, %r#1 : tensor<6x6xf32>, tensor<6x6xf32>
}
