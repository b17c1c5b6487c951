// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx2 | FileCheck %s
// RUN: sed 's/<vector, tile = .16, 32/<warpgroup, tile = [64, 32/' %s | tessera-opt --emit-kernels=targets=cuda:sm_90a | FileCheck %s --check-prefix=GPU
// A plan that was written by hand decides: tiles of 16 queries and 32 keys; on a GPU no warp
// specialization, and no other kernels for the runtime to time.

// CHECK: tile.launch @attention({{.*}}) blocks [152]
// CHECK: tile.alloc : memref<32x16xf32, #tile.shared>
// GPU: tile.launch @attention({{.*}}) blocks [40]
// GPU-NOT: tile.warp_specialize
// GPU-NOT: tile.variants
!q = tensor<2x300x4x128xbf16>
func.func @f(%q: !q) -> !q {
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<vector, tile = [16, 32]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<2x4x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}
