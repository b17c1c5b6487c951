// 256 tokens of four sequences, each to one of eight experts, whose rows are sent to them if that is cheaper.
func.func @eval_step(%x: tensor<4x256x64xf32> {graph.input = "x"}, %tokens: tensor<4x256xi32> {graph.input = "tokens"}, %ids: tensor<4x256x1xi32> {graph.input = "ids"},
                     %p: tensor<4x256x1xf32> {graph.input = "p"}, %w: tensor<8x64x64xf32> {graph.role = #graph<role parameter>, graph.state = "w"}) -> tensor<4x256x64xf32> attributes {graph.program = #graph.program<eval_step>} {
  %rows = graph.reshape %x : tensor<4x256x64xf32> -> tensor<1024x64xf32>
  %flat = graph.reshape %ids : tensor<4x256x1xi32> -> tensor<1024x1xi32>
  %weights = graph.reshape %p : tensor<4x256x1xf32> -> tensor<1024x1xf32>
  %all = graph.broadcast %tokens dims [0, 1] : tensor<4x256xi32> -> tensor<4x256x1xi32>
  %same = graph.add %all, %ids : tensor<4x256x1xi32>
  %offsets, %slots = graph.group_rows %flat : (tensor<1024x1xi32>) -> (tensor<9xi32>, tensor<1024x1xi32>)
  %own = graph.dispatch_rows %rows slots %slots : (tensor<1024x64xf32>, tensor<1024x1xi32>) -> tensor<1024x64xf32>
  %in, %theirs = graph.send_rows %own slots %slots groups %offsets : (tensor<1024x64xf32>, tensor<1024x1xi32>, tensor<9xi32>) -> (tensor<1024x64xf32>, tensor<9xi32>)
  %h = graph.grouped_matmul %in, %w groups %theirs {transposed} : (tensor<1024x64xf32>, tensor<8x64x64xf32>, tensor<9xi32>) -> tensor<1024x64xf32>
  %back = graph.return_rows %h slots %slots groups %offsets : (tensor<1024x64xf32>, tensor<1024x1xi32>, tensor<9xi32>) -> tensor<1024x64xf32>
  %out = graph.combine_rows %back slots %slots weights %weights : (tensor<1024x64xf32>, tensor<1024x1xi32>, tensor<1024x1xf32>) -> tensor<1024x64xf32>
  %y = graph.reshape %out : tensor<1024x64xf32> -> tensor<4x256x64xf32>
  return %y : tensor<4x256x64xf32>
}
