// RUN: tessera-opt %s --apply-precision=compute=bf16 --verify-precision=compute=bf16 | FileCheck %s
// State that blocks keep in f32: what is put into it is not rounded, and what an op with the attribute computes neither.

// CHECK-LABEL: func @decode_1
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x8xf32> {{.*}}, %[[S:[a-z0-9]+]]: tensor<4x8xf32> {
// CHECK: %[[NARROW:.*]] = graph.convert %[[X]] : tensor<2x8xf32> -> tensor<2x8xbf16>
// CHECK: %[[C:.*]]:2 = call @layer(%[[NARROW]], %[[S]], %{{.*}}) : (tensor<2x8xbf16>, tensor<4x8xf32>, tensor<2xi32>) -> (tensor<2x8xbf16>, tensor<4x8xf32>)
// CHECK: return %[[C]]#1
func.func @decode_1(%x: tensor<2x8xf32> {graph.state = "x", graph.role = #graph<role parameter>},
                    %s: tensor<4x8xf32> {graph.state = "s", graph.role = #graph<role recurrent>, graph.keep_f32},
                    %i: tensor<2xi32> {graph.input = "states"}) -> tensor<4x8xf32> {
  %0:2 = call @layer(%x, %s, %i) : (tensor<2x8xf32>, tensor<4x8xf32>, tensor<2xi32>) -> (tensor<2x8xf32>, tensor<4x8xf32>)
  return %0#1 : tensor<4x8xf32>
}

// CHECK-LABEL: func private @layer
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x8xbf16>, %[[S:[a-z0-9]+]]: tensor<4x8xf32> {graph.keep_f32}, {{.*}} -> (tensor<2x8xbf16>, tensor<4x8xf32> {graph.keep_f32})
func.func private @layer(%x: tensor<2x8xf32>, %s: tensor<4x8xf32> {graph.keep_f32}, %i: tensor<2xi32>) -> (tensor<2x8xf32>, tensor<4x8xf32> {graph.keep_f32}) attributes {graph.block} {
  // CHECK: %[[OLD:.*]] = graph.embedding %[[S]], %{{.*}} -> tensor<2x8xf32>
  %old = graph.embedding %s, %i : (tensor<4x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
  // CHECK: %[[WIDE:.*]] = graph.convert %[[X]] : tensor<2x8xbf16> -> tensor<2x8xf32>
  // CHECK: %[[NEW:.*]] = graph.add %[[OLD]], %[[WIDE]] {graph.keep_f32} : tensor<2x8xf32>
  %new = graph.add %old, %x {graph.keep_f32} : tensor<2x8xf32>
  // CHECK: %[[KEPT:.*]] = graph.scatter_rows %[[NEW]] at %{{.*}} into %[[S]] : tensor<2x8xf32>, tensor<2xi32>, tensor<4x8xf32>
  %kept = graph.scatter_rows %new at %i into %s : tensor<2x8xf32>, tensor<2xi32>, tensor<4x8xf32>
  // CHECK: return %{{.*}}, %[[KEPT]] : tensor<2x8xbf16>, tensor<4x8xf32>
  return %new, %kept : tensor<2x8xf32>, tensor<4x8xf32>
}
