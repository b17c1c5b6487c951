// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a" --split-input-file --verify-diagnostics
// Plans written by hand that no kernel has.

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: the engine vector cannot multiply these operands; expected warp_specialized, warpgroup or tensor_core}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<vector, tile = [64, 64]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: a tile of 64 queries; expected 192 or 128}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<warp_specialized, tile = [64, 64]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: a tile of 64 keys; expected 128}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<warp_specialized, tile = [192, 64]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: ping_pong = false with this tile; expected true}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<warp_specialized, tile = [192, 128]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x128xbf16>
!l = tensor<1x2x300xf32>
func.func @f(%q: !q, %l: !l) -> (!q, !q, !q) {
  // expected-error @+1 {{cluster 'grad' has no kernel: tile.plan: dkv of 64x64; expected 48x128}}
  %g:3 = graph.cluster attention_grad "grad"(%q, %l) attributes {tile.plan = #tile.attention_grad_plan<warp_specialized, dkv = [64, 64], dq = [128, 64]>} : (!q, !l) -> (!q, !q, !q) {
  ^bb0(%a: !q, %c: !l):
    %o:3 = graph.attention_grad %a, %a, %a, %a, %c, %a scale 0.1 {causal} : !q, !q, !q, !q, !l, !q
    graph.yield %o#0, %o#1, %o#2 : !q, !q, !q
  }
  return %g#0, %g#1, %g#2 : !q, !q, !q
}

// -----

!q = tensor<1x300x2x128xbf16>
!l = tensor<1x2x300xf32>
func.func @f(%q: !q, %l: !l) -> (!q, !q, !q) {
  // expected-error @+1 {{cluster 'grad' has no kernel: tile.plan: dq of 64x64; expected 128x64}}
  %g:3 = graph.cluster attention_grad "grad"(%q, %l) attributes {tile.plan = #tile.attention_grad_plan<warp_specialized, dkv = [48, 128], dq = [64, 64]>} : (!q, !l) -> (!q, !q, !q) {
  ^bb0(%a: !q, %c: !l):
    %o:3 = graph.attention_grad %a, %a, %a, %a, %c, %a scale 0.1 {causal} : !q, !q, !q, !q, !l, !q
    graph.yield %o#0, %o#1, %o#2 : !q, !q, !q
  }
  return %g#0, %g#1, %g#2 : !q, !q, !q
}

// -----

!q = tensor<1x300x2x128xbf16>
!l = tensor<1x2x300xf32>
func.func @f(%q: !q, %l: !l) -> (!q, !q, !q) {
  // expected-error @+1 {{cluster 'grad' has no kernel: tile.plan: the engine vector cannot multiply these operands; expected warp_specialized, warpgroup or tensor_core}}
  %g:3 = graph.cluster attention_grad "grad"(%q, %l) attributes {tile.plan = #tile.attention_grad_plan<vector, dkv = [64, 128], dq = [64, 64]>} : (!q, !l) -> (!q, !q, !q) {
  ^bb0(%a: !q, %c: !l):
    %o:3 = graph.attention_grad %a, %a, %a, %a, %c, %a scale 0.1 {causal} : !q, !q, !q, !q, !l, !q
    graph.yield %o#0, %o#1, %o#2 : !q, !q, !q
  }
  return %g#0, %g#1, %g#2 : !q, !q, !q
}

// -----

!q = tensor<1x300x2x128xbf16>
!l = tensor<1x2x300xf32>
func.func @f(%q: !q, %l: !l) -> (!q, !q, !q) {
  // expected-error @+1 {{cluster 'grad' has no kernel: tile.plan: dkv of 64x64; expected 32x64 or 16x64}}
  %g:3 = graph.cluster attention_grad "grad"(%q, %l) attributes {tile.plan = #tile.attention_grad_plan<warpgroup, dkv = [64, 64], dq = [64, 64]>} : (!q, !l) -> (!q, !q, !q) {
  ^bb0(%a: !q, %c: !l):
    %o:3 = graph.attention_grad %a, %a, %a, %a, %c, %a scale 0.1 {causal} : !q, !q, !q, !q, !l, !q
    graph.yield %o#0, %o#1, %o#2 : !q, !q, !q
  }
  return %g#0, %g#1, %g#2 : !q, !q, !q
}

// -----

!q = tensor<1x300x2x128xbf16>
!l = tensor<1x2x300xf32>
func.func @f(%q: !q, %l: !l) -> (!q, !q, !q) {
  // expected-error @+1 {{cluster 'grad' has no kernel: tile.plan: expected #tile.attention_grad_plan<…>, got #tile.attention_plan<warpgroup, tile = [64, 64]>}}
  %g:3 = graph.cluster attention_grad "grad"(%q, %l) attributes {tile.plan = #tile.attention_plan<warpgroup, tile = [64, 64]>} : (!q, !l) -> (!q, !q, !q) {
  ^bb0(%a: !q, %c: !l):
    %o:3 = graph.attention_grad %a, %a, %a, %a, %c, %a scale 0.1 {causal} : !q, !q, !q, !q, !l, !q
    graph.yield %o#0, %o#1, %o#2 : !q, !q, !q
  }
  return %g#0, %g#1, %g#2 : !q, !q, !q
}

// -----

!q = tensor<1x1x8x64xbf16>
!k = tensor<9x64x2x64xbf16>
func.func @f(%q: !q, %k: !k, %t: tensor<1x8xi32>, %n: tensor<1xi32>) -> !q {
  // expected-error @+1 {{cluster 'paged' has no kernel: tile.plan: split = 100 of 512 keys; expected a multiple of 64 that makes 2 to 32 parts, or none}}
  %y = graph.cluster paged_attention "paged"(%q, %k, %t, %n) attributes {tile.plan = #tile.attention_plan<tensor_core, tile = [16, 64], split = 100>} : (!q, !k, tensor<1x8xi32>, tensor<1xi32>) -> !q {
  ^bb0(%a: !q, %b: !k, %c: tensor<1x8xi32>, %d: tensor<1xi32>):
    %o = graph.paged_attention %a, %b, %b pages %c starts %d lengths %d scale 0.1 : !q, !k, tensor<1x8xi32>, tensor<1xi32>
    graph.yield %o : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x70x8x64xbf16>
!k = tensor<9x64x2x64xbf16>
func.func @f(%q: !q, %k: !k, %t: tensor<1x8xi32>, %n: tensor<1xi32>) -> !q {
  // expected-error @+1 {{cluster 'paged' has no kernel: tile.plan: split = 64; only decode splits keys, expected none}}
  %y = graph.cluster paged_attention "paged"(%q, %k, %t, %n) attributes {tile.plan = #tile.attention_plan<warpgroup, tile = [64, 64], split = 64>} : (!q, !k, tensor<1x8xi32>, tensor<1xi32>) -> !q {
  ^bb0(%a: !q, %b: !k, %c: tensor<1x8xi32>, %d: tensor<1xi32>):
    %o = graph.paged_attention %a, %b, %b pages %c starts %d lengths %d scale 0.1 : !q, !k, tensor<1x8xi32>, tensor<1xi32>
    graph.yield %o : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x1x8x64xbf16>
!k = tensor<9x64x2x64xbf16>
func.func @f(%q: !q, %k: !k, %t: tensor<1x8xi32>, %n: tensor<1xi32>) -> !q {
  // expected-error @+1 {{cluster 'paged' has no kernel: tile.plan: a tile of 48 keys; expected 64, 32 or 16}}
  %y = graph.cluster paged_attention "paged"(%q, %k, %t, %n) attributes {tile.plan = #tile.attention_plan<tensor_core, tile = [16, 48]>} : (!q, !k, tensor<1x8xi32>, tensor<1xi32>) -> !q {
  ^bb0(%a: !q, %b: !k, %c: tensor<1x8xi32>, %d: tensor<1xi32>):
    %o = graph.paged_attention %a, %b, %b pages %c starts %d lengths %d scale 0.1 : !q, !k, tensor<1x8xi32>, tensor<1xi32>
    graph.yield %o : !q
  }
  return %y : !q
}
