// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx,cpu:avx2 print" 2>&1 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_80 print" 2>&1 | FileCheck %s --check-prefix=SM80
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a print" 2>&1 | FileCheck %s --check-prefix=SM90

// CHECK: attention - attention vector bf16 memory bf16 memory 64x64 40
// CHECK: tile.plan = #tile.attention_plan<vector, tile = [64, 64]>
// SM80:  attention - attention tensor_core bf16 memory bf16 memory 64x64 40
// SM80:  tile.plan = #tile.attention_plan<tensor_core, tile = [64, 64]>
// SM90:  attention - attention warp_specialized bf16 memory bf16 memory 128x128 24
// SM90:  tile.plan = #tile.attention_plan<warp_specialized, tile = [128, 128], ping_pong = true>
func.func @f(%q: tensor<2x300x4x128xbf16>, %k: tensor<2x300x2x128xbf16>) -> tensor<2x300x4x128xbf16> {
  %y = graph.cluster attention "attention"(%q, %k) : (tensor<2x300x4x128xbf16>, tensor<2x300x2x128xbf16>) -> tensor<2x300x4x128xbf16> {
  ^bb0(%a: tensor<2x300x4x128xbf16>, %b: tensor<2x300x2x128xbf16>):
    %o:2 = graph.attention %a, %b, %b scale 0.1 {causal} : tensor<2x300x4x128xbf16>, tensor<2x300x2x128xbf16>, tensor<2x300x2x128xbf16> -> tensor<2x300x4x128xbf16>, tensor<2x4x300xf32>
    graph.yield %o#0 : tensor<2x300x4x128xbf16>
  }
  return %y : tensor<2x300x4x128xbf16>
}
