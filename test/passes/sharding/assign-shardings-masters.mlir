// RUN: tessera-opt %s --assign-shardings="mesh=data=3 zero=1" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ONCE
// RUN: tessera-opt %s --assign-shardings="mesh=data=3 zero=2" --verify-shardings | FileCheck %s --check-prefixes=CHECK,ONCE
// RUN: tessera-opt %s --assign-shardings="mesh=data=3 zero=3" --verify-shardings | FileCheck %s --check-prefixes=CHECK,EACH
// Parameters that are computed with in bf16 are master weights: ZeRO 1 and 2 shard
// them too and gather the bf16 copy once in a step, before the loop over
// microbatches. ZeRO 3 gathers it for each use.

// CHECK-LABEL: func.func @train_step(%arg0: tensor<6x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK: %[[SHARD:.*]] = graph.convert %arg0 {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>]}
// ONCE-NEXT: %[[W:.*]] = dist.reshard %[[SHARD]] to <@mesh, [{}, {}]> : tensor<6x6xbf16>
// CHECK: graph.loop 2
// ONCE-NOT: dist.reshard %[[SHARD]]
// ONCE: graph.einsum "bk,kn->bn" %{{.*}}, %[[W]]
// ONCE: graph.einsum "bn,kn->bk" %{{.*}}, %[[W]]
// EACH: %[[A:.*]] = dist.reshard %[[SHARD]] to <@mesh, [{}, {}]>
// EACH-NEXT: graph.einsum "bk,kn->bn" %{{.*}}, %[[A]]
// EACH: %[[B:.*]] = dist.reshard %[[SHARD]] to <@mesh, [{}, {}]>
// EACH-NEXT: graph.einsum "bn,kn->bk" %{{.*}}, %[[B]]
// The update needs no gather:
// CHECK: call @update(%arg0, %{{.*}}, %arg1)
// CHECK-NEXT: return
func.func private @update(%w: tensor<6x6xf32>, %g: tensor<6x6xf32>, %m: tensor<6x6xf32>) -> (tensor<6x6xf32>, tensor<6x6xf32>) {
  %n = graph.add %m, %g : tensor<6x6xf32>
  %v = graph.sub %w, %n : tensor<6x6xf32>
  return %v, %n : tensor<6x6xf32>, tensor<6x6xf32>
}

func.func @train_step(%w: tensor<6x6xf32> {graph.role = #graph<role parameter>, graph.state = "w"},
                      %m: tensor<6x6xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum"},
                      %table: tensor<9x6xbf16> {graph.input = "table"}, %tokens: tensor<2x3x5xi32> {graph.input = "tokens"})
    -> (tensor<6x6xf32> {graph.role = #graph<role parameter>, graph.state = "w"}, tensor<6x6xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum"}) attributes {graph.program = #graph.program<train_step>} {
  %zero = graph.constant dense<0.0> : tensor<6x6xf32>
  %copy = graph.convert %w : tensor<6x6xf32> -> tensor<6x6xbf16>
  %g = graph.loop 2 (%i, %sum = %zero) : (tensor<6x6xf32>) {
    %batch = graph.dynamic_slice %tokens[%i] : tensor<2x3x5xi32>, tensor<i32> -> tensor<3x5xi32>
    %rows = graph.embedding %table, %batch : (tensor<9x6xbf16>, tensor<3x5xi32>) -> tensor<3x5x6xbf16>
    %x = graph.reshape %rows : tensor<3x5x6xbf16> -> tensor<15x6xbf16>
    %y = graph.einsum "bk,kn->bn" %x, %copy : (tensor<15x6xbf16>, tensor<6x6xbf16>) -> tensor<15x6xbf16>
    %d = graph.einsum "bn,kn->bk" %y, %copy : (tensor<15x6xbf16>, tensor<6x6xbf16>) -> tensor<15x6xbf16>
    %p = graph.einsum "bk,bn->kn" %x, %d : (tensor<15x6xbf16>, tensor<15x6xbf16>) -> tensor<6x6xf32>
    %next = graph.add %sum, %p : tensor<6x6xf32>
    graph.yield %next : tensor<6x6xf32>
  }
  %r:2 = func.call @update(%w, %g, %m) : (tensor<6x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>) -> (tensor<6x6xf32>, tensor<6x6xf32>)
  return %r#0, %r#1 : tensor<6x6xf32>, tensor<6x6xf32>
}
