// RUN: tessera-opt %s --collective-matmul="mode=on explain=true" --partition-to-local --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s

// The gradient of a weight: tokens, which are gathered, are summed up. So every part adds to one sum.
// CHECK-LABEL: func.func @weight_gradient
// CHECK: %[[CAME:.*]] = dist.permute %arg0 targets [1, 0]
// CHECK: %[[DY:.*]] = graph.embedding {{.*}} -> tensor<2x1x32xf32>
// CHECK: %[[A:.*]] = graph.einsum "tk,tn->kn" %arg0, {{.*}} : (tensor<4x6xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
// CHECK: %[[B:.*]] = graph.einsum "tk,tn->kn" %[[CAME]], {{.*}} : (tensor<4x6xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
// CHECK: graph.add %[[A]], %[[B]]
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @weight_gradient(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %dy: tensor<8x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}) -> (tensor<6x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}) {
  %all = dist.reshard %x to <@mesh, [{}, {}]> : tensor<8x6xf32>
  %dw = graph.einsum "tk,tn->kn" %all, %dy {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : (tensor<8x6xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return %dw : tensor<6x16xf32>
}

// -----

// A feed-forward layer. What is computed element by element in between stays in parts, and nothing has to be put into
// its place: the second product makes for device r - k what the first one made of its tokens.
// CHECK-LABEL: func.func @feed_forward
// CHECK: %[[CAME:.*]] = dist.permute %arg0 targets [1, 0]
// CHECK: %[[H0:.*]] = graph.einsum "tk,kn->tn" %arg0, %arg1
// CHECK: %[[H1:.*]] = graph.einsum "tk,kn->tn" %[[CAME]], %arg1
// CHECK: %[[A0:.*]] = graph.silu %[[H0]]
// CHECK: %[[A1:.*]] = graph.silu %[[H1]]
// CHECK: %[[THEIRS:.*]] = graph.einsum "tn,nk->tk" %[[A1]], %arg2
// CHECK: %[[BACK:.*]] = dist.permute %[[THEIRS]] targets [1, 0]
// CHECK: %[[OWN:.*]] = graph.einsum "tn,nk->tk" %[[A0]], %arg2
// CHECK: graph.add %[[OWN]], %[[BACK]]
// CHECK-NOT: embedding
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @feed_forward(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %up: tensor<6x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %down: tensor<16x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) -> (tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  %all = dist.reshard %x to <@mesh, [{}, {}]> : tensor<8x6xf32>
  %h = graph.einsum "tk,kn->tn" %all, %up {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : (tensor<8x6xf32>, tensor<6x16xf32>) -> tensor<8x16xf32>
  %a = graph.silu %h {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : tensor<8x16xf32>
  %o = graph.einsum "tn,nk->tk" %a, %down {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"tensor"}>]} : (tensor<8x16xf32>, tensor<16x6xf32>) -> tensor<8x6xf32>
  %y = dist.reshard %o to <@mesh, [{"tensor"}, {}]> : tensor<8x6xf32>
  return %y : tensor<8x6xf32>
}

// -----

// Nine tokens of two devices: parts would not be equal.
// CHECK-LABEL: func.func @uneven
// CHECK: dist.all_gather {{.*}} shares [5, 4]
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @uneven(%x: tensor<9x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %w: tensor<6x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}) -> (tensor<9x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}) {
  // expected-remark @below {{not decomposed: shards of 9 are uneven}}
  %all = dist.reshard %x to <@mesh, [{}, {}]> : tensor<9x6xf32>
  %h = graph.einsum "tk,kn->tn" %all, %w {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : (tensor<9x6xf32>, tensor<6x16xf32>) -> tensor<9x16xf32>
  return %h : tensor<9x16xf32>
}

// -----

// Somebody else reads what is gathered, and would have to put it together again.
// CHECK-LABEL: func.func @others
// CHECK: dist.all_gather
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @others(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %w: tensor<6x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}) -> (tensor<8x6xf32>, tensor<8x16xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}) {
  // expected-remark @below {{not decomposed: not all users of the gathered tensor are matmuls}}
  %all = dist.reshard %x to <@mesh, [{}, {}]> : tensor<8x6xf32>
  %h = graph.einsum "tk,kn->tn" %all, %w {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"}]>]} : (tensor<8x6xf32>, tensor<6x16xf32>) -> tensor<8x16xf32>
  return %all, %h : tensor<8x6xf32>, tensor<8x16xf32>
}
