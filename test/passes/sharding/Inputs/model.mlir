// A model of one layer: fused projection of queries, keys and values,
// attention, a feed-forward layer, a head. 4 sequences of 6 tokens, 4 heads of 2.
func.func private @layer(%x: tensor<4x6x8xf32>, %norm: tensor<8xf32>, %qkv: tensor<8x24xf32>, %out: tensor<8x8xf32>, %up: tensor<8x20xf32>, %down: tensor<20x8xf32>) -> tensor<4x6x8xf32> attributes {graph.block} {
  %n = graph.rms_norm %x, %norm eps 1.0e-5 : tensor<4x6x8xf32>, tensor<8xf32>
  %a = graph.einsum "btk,kn->btn" %n, %qkv : (tensor<4x6x8xf32>, tensor<8x24xf32>) -> tensor<4x6x24xf32>
  %q = graph.slice %a [0, 0, 0] : tensor<4x6x24xf32> -> tensor<4x6x8xf32>
  %k = graph.slice %a [0, 0, 8] : tensor<4x6x24xf32> -> tensor<4x6x8xf32>
  %v = graph.slice %a [0, 0, 16] : tensor<4x6x24xf32> -> tensor<4x6x8xf32>
  %qh = graph.reshape %q : tensor<4x6x8xf32> -> tensor<4x6x4x2xf32>
  %kh = graph.reshape %k : tensor<4x6x8xf32> -> tensor<4x6x4x2xf32>
  %vh = graph.reshape %v : tensor<4x6x8xf32> -> tensor<4x6x4x2xf32>
  %o, %lse = graph.attention %qh, %kh, %vh scale 0.5 {causal} : tensor<4x6x4x2xf32>, tensor<4x6x4x2xf32>, tensor<4x6x4x2xf32> -> tensor<4x6x4x2xf32>, tensor<4x4x6xf32>
  %oh = graph.reshape %o : tensor<4x6x4x2xf32> -> tensor<4x6x8xf32>
  %p = graph.einsum "btk,kn->btn" %oh, %out : (tensor<4x6x8xf32>, tensor<8x8xf32>) -> tensor<4x6x8xf32>
  %y = graph.add %x, %p : tensor<4x6x8xf32>
  %h = graph.einsum "btk,kn->btn" %y, %up : (tensor<4x6x8xf32>, tensor<8x20xf32>) -> tensor<4x6x20xf32>
  %g = graph.gelu %h tanh : tensor<4x6x20xf32>
  %d = graph.einsum "btk,kn->btn" %g, %down : (tensor<4x6x20xf32>, tensor<20x8xf32>) -> tensor<4x6x8xf32>
  %z = graph.add %y, %d : tensor<4x6x8xf32>
  return %z : tensor<4x6x8xf32>
}

func.func @eval_step(%wte: tensor<50x8xf32> {graph.role = #graph<role parameter>, graph.state = "wte"},
                     %norm: tensor<8xf32> {graph.role = #graph<role parameter>, graph.state = "norm"},
                     %qkv: tensor<8x24xf32> {graph.role = #graph<role parameter>, graph.state = "qkv"},
                     %out: tensor<8x8xf32> {graph.role = #graph<role parameter>, graph.state = "out"},
                     %up: tensor<8x20xf32> {graph.role = #graph<role parameter>, graph.state = "up"},
                     %down: tensor<20x8xf32> {graph.role = #graph<role parameter>, graph.state = "down"},
                     %tokens: tensor<4x6xi32> {graph.input = "tokens"}, %targets: tensor<4x6xi32> {graph.input = "targets"}) -> (tensor<f32> {graph.output = "loss_sum"}) attributes {graph.program = #graph.program<eval_step>} {
  %x = graph.embedding %wte, %tokens : (tensor<50x8xf32>, tensor<4x6xi32>) -> tensor<4x6x8xf32>
  %y = func.call @layer(%x, %norm, %qkv, %out, %up, %down) : (tensor<4x6x8xf32>, tensor<8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8x20xf32>, tensor<20x8xf32>) -> tensor<4x6x8xf32>
  %rows = graph.reshape %y : tensor<4x6x8xf32> -> tensor<24x8xf32>
  %ids = graph.reshape %targets : tensor<4x6xi32> -> tensor<24xi32>
  %loss = graph.linear_cross_entropy %rows, %wte, %ids : tensor<24x8xf32>, tensor<50x8xf32>, tensor<24xi32> -> tensor<f32>
  return %loss : tensor<f32>
}
