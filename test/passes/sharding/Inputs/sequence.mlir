// Feed-forward layers so wide that what stands between products is worth cutting.
func.func @eval_step(%x: tensor<4x4096x1024xf32> {graph.input = "x"}, %tokens: tensor<4x4096xi32> {graph.input = "tokens"},
                     %gain: tensor<1024xf32> {graph.role = #graph<role parameter>, graph.state = "gain"},
                     %up: tensor<1024x4096xf32> {graph.role = #graph<role parameter>, graph.state = "up"}, %down: tensor<4096x1024xf32> {graph.role = #graph<role parameter>, graph.state = "down"}) -> tensor<f32> attributes {graph.program = #graph.program<eval_step>} {
  %like = graph.broadcast %tokens dims [0, 1] : tensor<4x4096xi32> -> tensor<4x4096x1024xi32>
  %ids = graph.convert %like : tensor<4x4096x1024xi32> -> tensor<4x4096x1024xf32>
  %sum = graph.add %x, %ids : tensor<4x4096x1024xf32>
  %y = func.call @layer(%sum, %gain, %up, %down) : (tensor<4x4096x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>) -> tensor<4x4096x1024xf32>
  %z = func.call @layer(%y, %gain, %up, %down) : (tensor<4x4096x1024xf32>, tensor<1024xf32>, tensor<1024x4096xf32>, tensor<4096x1024xf32>) -> tensor<4x4096x1024xf32>
  %all = graph.reduce %z sum dims [0, 1, 2] : tensor<4x4096x1024xf32> -> tensor<f32>
  return %all : tensor<f32>
}
func.func private @layer(%x: tensor<4x4096x1024xf32>, %gain: tensor<1024xf32>, %up: tensor<1024x4096xf32>, %down: tensor<4096x1024xf32>) -> tensor<4x4096x1024xf32> {
  %n = graph.rms_norm %x, %gain eps 1.0e-05 : tensor<4x4096x1024xf32>, tensor<1024xf32>
  %h = graph.einsum "btk,kn->btn" %n, %up : (tensor<4x4096x1024xf32>, tensor<1024x4096xf32>) -> tensor<4x4096x4096xf32>
  %a = graph.silu %h : tensor<4x4096x4096xf32>
  %o = graph.einsum "btn,nk->btk" %a, %down : (tensor<4x4096x4096xf32>, tensor<4096x1024xf32>) -> tensor<4x4096x1024xf32>
  %y = graph.add %x, %o : tensor<4x4096x1024xf32>
  return %y : tensor<4x4096x1024xf32>
}
