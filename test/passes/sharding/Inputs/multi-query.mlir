// Four query heads of one key head: heads cannot be cut, and colors know of
// nothing else in attention that `tensor` may.
func.func @eval_step(%x: tensor<4x16384x256xf32> {graph.input = "x"}, %tokens: tensor<4x16384xi32> {graph.input = "tokens"},
                     %query: tensor<256x256xf32> {graph.role = #graph<role parameter>, graph.state = "query"}, %key: tensor<256x64xf32> {graph.role = #graph<role parameter>, graph.state = "key"},
                     %value: tensor<256x64xf32> {graph.role = #graph<role parameter>, graph.state = "value"}, %out: tensor<256x256xf32> {graph.role = #graph<role parameter>, graph.state = "out"}) -> tensor<f32> attributes {graph.program = #graph.program<eval_step>} {
  %like = graph.broadcast %tokens dims [0, 1] : tensor<4x16384xi32> -> tensor<4x16384x256xi32>
  %ids = graph.convert %like : tensor<4x16384x256xi32> -> tensor<4x16384x256xf32>
  %sum = graph.add %x, %ids : tensor<4x16384x256xf32>
  %y = func.call @layer(%sum, %query, %key, %value, %out) : (tensor<4x16384x256xf32>, tensor<256x256xf32>, tensor<256x64xf32>, tensor<256x64xf32>, tensor<256x256xf32>) -> tensor<4x16384x256xf32>
  %z = func.call @layer(%y, %query, %key, %value, %out) : (tensor<4x16384x256xf32>, tensor<256x256xf32>, tensor<256x64xf32>, tensor<256x64xf32>, tensor<256x256xf32>) -> tensor<4x16384x256xf32>
  %all = graph.reduce %z sum dims [0, 1, 2] : tensor<4x16384x256xf32> -> tensor<f32>
  return %all : tensor<f32>
}
func.func private @layer(%x: tensor<4x16384x256xf32>, %query: tensor<256x256xf32>, %key: tensor<256x64xf32>, %value: tensor<256x64xf32>, %out: tensor<256x256xf32>) -> tensor<4x16384x256xf32> {
  %q = graph.einsum "btk,kn->btn" %x, %query : (tensor<4x16384x256xf32>, tensor<256x256xf32>) -> tensor<4x16384x256xf32>
  %k = graph.einsum "btk,kn->btn" %x, %key : (tensor<4x16384x256xf32>, tensor<256x64xf32>) -> tensor<4x16384x64xf32>
  %v = graph.einsum "btk,kn->btn" %x, %value : (tensor<4x16384x256xf32>, tensor<256x64xf32>) -> tensor<4x16384x64xf32>
  %heads = graph.reshape %q : tensor<4x16384x256xf32> -> tensor<4x16384x4x64xf32>
  %keys = graph.reshape %k : tensor<4x16384x64xf32> -> tensor<4x16384x1x64xf32>
  %values = graph.reshape %v : tensor<4x16384x64xf32> -> tensor<4x16384x1x64xf32>
  %a, %lse = graph.attention %heads, %keys, %values scale 1.25e-01 {causal} : tensor<4x16384x4x64xf32>, tensor<4x16384x1x64xf32>, tensor<4x16384x1x64xf32> -> tensor<4x16384x4x64xf32>, tensor<4x4x16384xf32>
  %flat = graph.reshape %a : tensor<4x16384x4x64xf32> -> tensor<4x16384x256xf32>
  %o = graph.einsum "btn,nk->btk" %flat, %out : (tensor<4x16384x256xf32>, tensor<256x256xf32>) -> tensor<4x16384x256xf32>
  %y = graph.add %x, %o : tensor<4x16384x256xf32>
  return %y : tensor<4x16384x256xf32>
}
