// Tokens between products are cut over `tensor` (sequence parallelism): what is gathered before a product, and what is
// scattered behind one, goes in parts beside the parts of the product.
// RUN: tessera-opt %s --collective-matmul="mode=on" --split-input-file | FileCheck %s --check-prefix=MARK
// RUN: tessera-opt %s --collective-matmul="mode=on" --partition-to-local --canonicalize --cse --split-input-file | FileCheck %s
// RUN: tessera-opt %s --collective-matmul="mode=off" --partition-to-local --split-input-file | FileCheck %s --check-prefix=OFF
// OFF: dist.all_gather
// OFF: dist.reduce_scatter

// Two products of what is gathered. Of device r part k comes from device r - k: first its own, which is there.
// MARK-LABEL: func.func @gather
// MARK: dist.reshard %arg0 to <@mesh, [{}, {}, {}]> {dist.collective_matmul}
// CHECK-LABEL: func.func @gather(%arg0: tensor<2x2x6xf32>
// CHECK-DAG: %[[ONE:.*]] = dist.permute %arg0 targets [1, 2, 3, 0] over @mesh [#dist.axis_ref<"tensor">]
// CHECK-DAG: %[[TWO:.*]] = dist.permute %arg0 targets [2, 3, 0, 1] over
// CHECK-DAG: %[[THREE:.*]] = dist.permute %arg0 targets [3, 0, 1, 2] over
// CHECK: %[[A0:.*]] = graph.einsum "btk,kn->btn" %arg0, %arg1 : (tensor<2x2x6xf32>, tensor<6x16xf32>) -> tensor<2x2x16xf32>
// CHECK: %[[A1:.*]] = graph.einsum "btk,kn->btn" %[[ONE]], %arg1
// CHECK: %[[A2:.*]] = graph.einsum "btk,kn->btn" %[[TWO]], %arg1
// CHECK: %[[A3:.*]] = graph.einsum "btk,kn->btn" %[[THREE]], %arg1
// CHECK: %[[B0:.*]] = graph.einsum "btk,kn->btn" %arg0, %arg2
// Results are put into their slots: parts of two sequences each, in one tensor, of which rows are picked.
// CHECK: %[[ALL:.*]] = dist.pack(%[[A0]], %[[A1]], %[[A2]], %[[A3]]) pieces 1 : (tensor<2x2x16xf32>, tensor<2x2x16xf32>, tensor<2x2x16xf32>, tensor<2x2x16xf32>) -> tensor<256xf32>
// CHECK: %[[ROWS:.*]] = graph.reshape %[[ALL]] : tensor<256xf32> -> tensor<8x32xf32>
// CHECK: graph.embedding %[[ROWS]], %{{.*}} : (tensor<8x32xf32>, tensor<2x4xi32>) -> tensor<2x4x32xf32>
// CHECK-NOT: all_gather
dist.mesh @mesh [#dist.axis<"tensor" = 4>]
func.func @gather(%x: tensor<2x8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}, {}]>}, %wa: tensor<6x64xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %wb: tensor<6x64xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>})
    -> (tensor<2x8x64xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {"tensor"}]>}, tensor<2x8x64xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {"tensor"}]>}) {
  %all = dist.reshard %x to <@mesh, [{}, {}, {}]> : tensor<2x8x6xf32>
  %a = graph.einsum "btk,kn->btn" %all, %wa {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {"tensor"}]>]} : (tensor<2x8x6xf32>, tensor<6x64xf32>) -> tensor<2x8x64xf32>
  %b = graph.einsum "btk,kn->btn" %all, %wb {dist.shardings = [#dist.sharding<@mesh, [{}, {}, {"tensor"}]>]} : (tensor<2x8x6xf32>, tensor<6x64xf32>) -> tensor<2x8x64xf32>
  return %a, %b : tensor<2x8x64xf32>, tensor<2x8x64xf32>
}

// -----

// A product is made part by part, each for another device, this device's own last. bf16 is added up in f32.
// MARK-LABEL: func.func @scatter
// MARK: dist.reshard {{.*}} to <@mesh, [{"tensor"}, {}]> {dist.collective_matmul}
// CHECK-LABEL: func.func @scatter(%arg0: tensor<8x4xbf16>
// The operand's rows, in the order in which parts are made.
// CHECK: %[[H:.*]] = graph.embedding %{{.*}} : (tensor<2x16xbf16>, tensor<2x1xi32>) -> tensor<2x1x16xbf16>
// CHECK-DAG: %[[THEIRS:.*]] = graph.slice %[[H]] [1, 0, 0]
// CHECK-DAG: %[[OWN:.*]] = graph.slice %[[H]] [0, 0, 0]
// CHECK: %[[PART:.*]] = graph.einsum "tn,nk->tk" {{.*}} -> tensor<4x6xbf16>
// CHECK: %[[CAME:.*]] = dist.permute %[[PART]] targets [1, 0] over @mesh [#dist.axis_ref<"tensor">]
// CHECK: %[[SUM:.*]] = graph.einsum "tn,nk->tk" {{.*}} -> tensor<4x6xf32>
// CHECK: %[[WIDE:.*]] = graph.convert %[[CAME]] : tensor<4x6xbf16> -> tensor<4x6xf32>
// CHECK: %[[Y:.*]] = graph.add %[[SUM]], %[[WIDE]] : tensor<4x6xf32>
// CHECK: graph.convert %[[Y]] : tensor<4x6xf32> -> tensor<4x6xbf16>
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @scatter(%h: tensor<8x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %w: tensor<8x6xbf16> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) -> (tensor<8x6xbf16> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  %y = graph.einsum "tn,nk->tk" %h, %w {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"tensor"}>]} : (tensor<8x8xbf16>, tensor<8x6xbf16>) -> tensor<8x6xbf16>
  %z = dist.reshard %y to <@mesh, [{"tensor"}, {}]> : tensor<8x6xbf16>
  return %z : tensor<8x6xbf16>
}
