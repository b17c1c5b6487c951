// RUN: tessera-opt %s --plan-kernels=targets=cpu:amx | FileCheck %s
// 64 rows and more by weights in the packed layout: a launch before packs the rows for AMX.

// CHECK: tile.plan = #tile.contraction_plan<matrix, lhs = packed, rhs = memory
func.func @f(%x: tensor<96x896xbf16>, %w: tensor<4x896x16xbf16>) -> tensor<96x50xf32> {
  %r = graph.cluster contraction "linear"(%x, %w) : (tensor<96x896xbf16>, tensor<4x896x16xbf16>) -> tensor<96x50xf32> {
  ^bb0(%a: tensor<96x896xbf16>, %b: tensor<4x896x16xbf16>):
    %d = graph.dequantize %b bits 16 group 32 : tensor<4x896x16xbf16> -> tensor<50x896xbf16>
    %c = graph.einsum "mk,nk->mn" %a, %d : (tensor<96x896xbf16>, tensor<50x896xbf16>) -> tensor<96x50xf32>
    graph.yield %c : tensor<96x50xf32>
  }
  return %r : tensor<96x50xf32>
}
