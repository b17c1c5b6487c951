// RUN: tessera-opt %s --apply-precision=compute=bf16 --verify-precision=compute=bf16 --differentiate --canonicalize --f32-weight-gradients --canonicalize | FileCheck %s
// RUN: tessera-opt %s --apply-precision=compute=bf16 --differentiate --f32-weight-gradients --decompose-composites --normalize-reductions --inline-blocks --fuse --verify-fused --emit-kernels=targets=cuda:sm_90a --canonicalize --cse --verify-tiled | FileCheck %s --check-prefix=TILED

// A layer of experts through all phases: bf16 factors, masters and gradients of weights in f32. What the gradients need
// are the two grouped ops again, with nothing transposed.

// CHECK-LABEL: func @gradients(
// CHECK-SAME:  %[[W:.*]]: tensor<4x48x32xf32> {{.*}}, %[[X:.*]]: tensor<64x32xf32>, %[[G:.*]]: tensor<5xi32>
// CHECK-DAG:   %[[X16:.*]] = graph.convert %[[X]] : tensor<64x32xf32> -> tensor<64x32xbf16>
// CHECK-DAG:   %[[W16:.*]] = graph.convert %[[W]] : tensor<4x48x32xf32> -> tensor<4x48x32xbf16>
// CHECK:       %[[Y:.*]] = graph.grouped_matmul %[[X16]], %[[W16]] groups %[[G]] {transposed} : {{.*}} -> tensor<64x48xbf16>
// CHECK:       graph.grouped_matmul %[[H:.*]], %[[W16]] groups %[[G]] : {{.*}} -> tensor<64x32xbf16>
// CHECK:       graph.grouped_matmul %[[DZ:.*]], %[[W16]] groups %[[G]] {transposed} : {{.*}} -> tensor<64x48xbf16>
// CHECK:       graph.grouped_outer %[[H]], %[[DZ]] groups %[[G]] : {{.*}} -> tensor<4x48x32xf32>
// CHECK:       graph.grouped_outer %{{.*}}, %[[X16]] groups %[[G]] : {{.*}} -> tensor<4x48x32xf32>

// TILED-LABEL: func @gradients(
// TILED:       tile.launch @grouped_matmul_silu_convert
// TILED:       tile.launch @grouped_outer(
// TILED:       tile.launch @grouped_outer_add({{.*}} reuse [3, 0]
// TILED:       tile.kernel @grouped_outer_add
func.func @loss(%w: tensor<4x48x32xf32> {graph.state = "experts.weight", graph.role = #graph<role parameter>, graph.decay}, %x: tensor<64x32xf32>, %g: tensor<5xi32>) -> (tensor<f32> {graph.output = "loss_sum"}) attributes {graph.program = #graph.program<loss>} {
  %y = graph.grouped_matmul %x, %w groups %g {transposed} : (tensor<64x32xf32>, tensor<4x48x32xf32>, tensor<5xi32>) -> tensor<64x48xf32>
  %h = graph.silu %y : tensor<64x48xf32>
  %z = graph.grouped_matmul %h, %w groups %g : (tensor<64x48xf32>, tensor<4x48x32xf32>, tensor<5xi32>) -> tensor<64x32xf32>
  %q = graph.mul %z, %z : tensor<64x32xf32>
  %s = graph.reduce %q sum dims [0, 1] : tensor<64x32xf32> -> tensor<f32>
  return %s : tensor<f32>
}
