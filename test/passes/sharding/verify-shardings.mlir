// RUN: tessera-opt %s --verify-shardings | FileCheck %s
// Nothing changes what holds: parts of sums pass through what is linear in them
// and become whole by a reshard; zeros are parts too.
// CHECK-LABEL: func.func @f
// CHECK: dist.reshard
dist.mesh @mesh [#dist.axis<"data" = 2>, #dist.axis<"tensor" = 3>]
func.func @f(%h: tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"tensor"}]>}, %down: tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>},
             %ids: tensor<6xi32> {dist.sharding = #dist.sharding<@mesh, [{"data"}]>}) -> tensor<5x4xf32> {
  %zero = graph.constant {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"data", "tensor"}>]} dense<0.0> : tensor<5x4xf32>
  %y = graph.einsum "bk,kn->bn" %h, %down {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"tensor"}>]} : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %n = graph.neg %y {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], partial sum {"tensor"}>]} : tensor<6x4xf32>
  %s = graph.scatter_add %n at %ids onto %zero {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"data", "tensor"}>]} : tensor<6x4xf32>, tensor<6xi32>, tensor<5x4xf32>
  %w = dist.reshard %s to <@mesh, [{}, {}]> : tensor<5x4xf32>
  return %w : tensor<5x4xf32>
}
