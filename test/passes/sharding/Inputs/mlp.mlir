// A feed-forward layer between two norms, as models have it.
func.func @eval_step(%x: tensor<2x8x6xf32> {graph.input = "x"}, %tokens: tensor<2x8xi32> {graph.input = "tokens"},
                     %gain: tensor<6xf32> {graph.role = #graph<role parameter>, graph.state = "gain"},
                     %up: tensor<6x64xf32> {graph.role = #graph<role parameter>, graph.state = "up"}, %down: tensor<64x6xf32> {graph.role = #graph<role parameter>, graph.state = "down"}) -> tensor<2x8x6xf32> attributes {graph.program = #graph.program<eval_step>} {
  %like = graph.broadcast %tokens dims [0, 1] : tensor<2x8xi32> -> tensor<2x8x6xi32>
  %ids = graph.convert %like : tensor<2x8x6xi32> -> tensor<2x8x6xf32>
  %sum = graph.add %x, %ids : tensor<2x8x6xf32>
  %y = func.call @layer(%sum, %gain, %up, %down) : (tensor<2x8x6xf32>, tensor<6xf32>, tensor<6x64xf32>, tensor<64x6xf32>) -> tensor<2x8x6xf32>
  %z = func.call @layer(%y, %gain, %up, %down) : (tensor<2x8x6xf32>, tensor<6xf32>, tensor<6x64xf32>, tensor<64x6xf32>) -> tensor<2x8x6xf32>
  return %z : tensor<2x8x6xf32>
}
func.func private @layer(%x: tensor<2x8x6xf32>, %gain: tensor<6xf32>, %up: tensor<6x64xf32>, %down: tensor<64x6xf32>) -> tensor<2x8x6xf32> {
  %n = graph.rms_norm %x, %gain eps 1.0e-05 : tensor<2x8x6xf32>, tensor<6xf32>
  %h = graph.einsum "btk,kn->btn" %n, %up : (tensor<2x8x6xf32>, tensor<6x64xf32>) -> tensor<2x8x64xf32>
  %a = graph.silu %h : tensor<2x8x64xf32>
  %o = graph.einsum "btn,nk->btk" %a, %down : (tensor<2x8x64xf32>, tensor<64x6xf32>) -> tensor<2x8x6xf32>
  %y = graph.add %x, %o : tensor<2x8x6xf32>
  return %y : tensor<2x8x6xf32>
}
