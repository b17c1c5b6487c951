// RUN: tessera-opt %s --plan-kernels="targets=cpu:amx" --split-input-file --verify-diagnostics
// Plans written by hand that no kernel has.

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: the engine matrix cannot multiply these operands; expected vector}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<matrix, tile = [64, 64]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: a tile of 48 queries; expected 64, 32 or 16}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<vector, tile = [48, 64]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: a tile of 24 keys; expected 64, 32, 128 or 256}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<vector, tile = [64, 24]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: ping_pong = true with this tile; expected false}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<vector, tile = [64, 64], ping_pong = true>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: split = 64; only decode on a GPU splits keys, expected none}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.attention_plan<vector, tile = [64, 64], split = 64>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x300x2x64xbf16>
func.func @f(%q: !q) -> !q {
  // expected-error @+1 {{cluster 'attention' has no kernel: tile.plan: expected #tile.attention_plan<…>, got #tile.contraction_plan<vector, lhs = memory, rhs = memory, tile = [64, 64]>}}
  %y = graph.cluster attention "attention"(%q) attributes {tile.plan = #tile.contraction_plan<vector, lhs = memory, rhs = memory, tile = [64, 64]>} : (!q) -> !q {
  ^bb0(%a: !q):
    %o:2 = graph.attention %a, %a, %a scale 0.1 {causal} : !q, !q, !q -> !q, tensor<1x2x300xf32>
    graph.yield %o#0 : !q
  }
  return %y : !q
}

// -----

!q = tensor<1x1x8x64xbf16>
!k = tensor<9x64x2x64xbf16>
func.func @f(%q: !q, %k: !k, %t: tensor<1x8xi32>, %n: tensor<1xi32>) -> !q {
  // expected-error @+1 {{cluster 'paged' has no kernel: tile.plan: a tile of 32 keys; expected 64}}
  %y = graph.cluster paged_attention "paged"(%q, %k, %t, %n) attributes {tile.plan = #tile.attention_plan<matrix, tile = [8, 32]>} : (!q, !k, tensor<1x8xi32>, tensor<1xi32>) -> !q {
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
  // expected-error @+1 {{cluster 'paged' has no kernel: tile.plan: a tile of 24 queries; expected 4, 8, 64, 32 or 16}}
  %y = graph.cluster paged_attention "paged"(%q, %k, %t, %n) attributes {tile.plan = #tile.attention_plan<vector, tile = [24, 64]>} : (!q, !k, tensor<1x8xi32>, tensor<1xi32>) -> !q {
  ^bb0(%a: !q, %b: !k, %c: tensor<1x8xi32>, %d: tensor<1xi32>):
    %o = graph.paged_attention %a, %b, %b pages %c starts %d lengths %d scale 0.1 : !q, !k, tensor<1x8xi32>, tensor<1xi32>
    graph.yield %o : !q
  }
  return %y : !q
}

// -----

func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{cluster 'relu' has no kernel: tile.plan: clusters of kind elementwise have one kernel; remove the attribute}}
  %y = graph.cluster elementwise "relu" (%x) attributes {tile.plan = #tile.attention_plan<vector, tile = [64, 64]>} : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %r = graph.relu %a : tensor<8xf32>
    graph.yield %r : tensor<8xf32>
  }
  return %y : tensor<8xf32>
}
