// Products in parts: of what is gathered and of what is scattered, a part is on its way while another is multiplied.
// RUN: tessera-opt %s --collective-matmul --partition-to-local --canonicalize --cse --fuse --verify-fused --order-collectives --bucket-collectives --overlap-collectives --verify-overlap | FileCheck %s

// CHECK-LABEL: func.func @feed_forward
// CHECK: %[[P:.*]] = dist.permute %arg0 targets [1, 0] over {{.*}} -> !dist.pending
// CHECK-NEXT: %[[OWN:.*]] = graph.cluster contraction "linear_silu"(%arg0, %arg1)
// CHECK: %[[THEIRS:.*]] = dist.wait %[[P]]
// CHECK-NEXT: %[[H:.*]] = graph.cluster contraction "linear_silu"(%[[THEIRS]], %arg1)
// CHECK: %[[O:.*]] = graph.cluster contraction "linear"(%[[H]], %arg2)
// CHECK: %[[S:.*]] = dist.permute %[[O]] targets [1, 0] over {{.*}} -> !dist.pending
// CHECK-NEXT: %[[LAST:.*]] = graph.cluster contraction "linear"(%[[OWN]], %arg2)
// CHECK: %[[CAME:.*]] = dist.wait %[[S]]
// CHECK-NEXT: graph.cluster elementwise "add_convert"(%[[LAST]], %[[CAME]], %arg0)
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @feed_forward(%x: tensor<8192x4096xbf16> {graph.input = "x", dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %up: tensor<4096x16384xbf16> {graph.state = "up", dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %down: tensor<16384x4096xbf16> {graph.state = "down", dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>})
    -> (tensor<8192x4096xbf16> {graph.output = "y", dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  %all = dist.reshard %x to <@mesh, [{}, {}]> : tensor<8192x4096xbf16>
  %h = graph.einsum "tk,kn->tn" %all, %up {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : (tensor<8192x4096xbf16>, tensor<4096x16384xbf16>) -> tensor<8192x16384xbf16>
  %a = graph.silu %h {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : tensor<8192x16384xbf16>
  %o = graph.einsum "tn,nk->tk" %a, %down {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"tensor"}>]} : (tensor<8192x16384xbf16>, tensor<16384x4096xbf16>) -> tensor<8192x4096xbf16>
  %y = dist.reshard %o to <@mesh, [{"tensor"}, {}]> : tensor<8192x4096xbf16>
  %r = graph.add %x, %y {dist.shardings = [#dist.sharding<@mesh, [{"tensor"}, {}]>]} : tensor<8192x4096xbf16>
  return %r : tensor<8192x4096xbf16>
}
