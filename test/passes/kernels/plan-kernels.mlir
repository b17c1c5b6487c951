// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx,cpu:avx2 print" 2>&1 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels="targets=cpu:avx2" | FileCheck %s --check-prefix=VECTOR
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a" | FileCheck %s --check-prefix=GPU

// CHECK: cluster module kind engine lhs rhs tile blocks layer
// CHECK: @f
// CHECK: linear - contraction matrix bf16 memory bf16 memory [[ROWS:[0-9]+]]x[[COLUMNS:[0-9]+]]
// CHECK: relu - elementwise - - - - - 2-30
// CHECK: tile.plan = #tile.contraction_plan<matrix, lhs = memory, rhs = memory, tile = [
// VECTOR: tile.plan = #tile.contraction_plan<vector, lhs = memory, rhs = memory, tile = [
// GPU: tile.plan = #tile.contraction_plan<warp_specialized, lhs = memory, rhs = memory, tile = [
module attributes {graph.folded = array<i64: 0, 1, 32>} {
func.func @f(%x: tensor<512x256xbf16>, %w: tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x256xbf16>, %b: tensor<256x512xbf16>):
    %r = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x256xbf16>, tensor<256x512xbf16>) -> tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  %z = graph.cluster elementwise "relu" (%y) attributes {graph.layer = #graph.layer<2>} : (tensor<512x512xbf16>) -> tensor<512x512xbf16> {
  ^bb0(%a: tensor<512x512xbf16>):
    %r = graph.relu %a : tensor<512x512xbf16>
    graph.yield %r : tensor<512x512xbf16>
  }
  return %z : tensor<512x512xbf16>
}
}
