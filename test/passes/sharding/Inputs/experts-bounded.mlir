// Four tokens of two sequences, each to two of four experts, whose rows are sent to them in any case, with room for 0.75 of the mean.
func.func @eval_step(%x: tensor<2x4x6xf32> {graph.input = "x"}, %tokens: tensor<2x4xi32> {graph.input = "tokens"}, %ids: tensor<2x4x2xi32> {graph.input = "ids"},
                     %p: tensor<2x4x2xf32> {graph.input = "p"}, %w: tensor<4x6x6xf32> {graph.role = #graph<role parameter>, graph.state = "w"}) -> tensor<2x4x6xf32> attributes {graph.program = #graph.program<eval_step>} {
  %rows = graph.reshape %x : tensor<2x4x6xf32> -> tensor<8x6xf32>
  %flat = graph.reshape %ids : tensor<2x4x2xi32> -> tensor<8x2xi32>
  %weights = graph.reshape %p : tensor<2x4x2xf32> -> tensor<8x2xf32>
  %all = graph.broadcast %tokens dims [0, 1] : tensor<2x4xi32> -> tensor<2x4x2xi32>
  %same = graph.add %all, %ids : tensor<2x4x2xi32>
  %offsets, %slots = graph.group_rows %flat : (tensor<8x2xi32>) -> (tensor<5xi32>, tensor<8x2xi32>)
  %own = graph.dispatch_rows %rows slots %slots : (tensor<8x6xf32>, tensor<8x2xi32>) -> tensor<16x6xf32>
  %in, %theirs = graph.send_rows %own slots %slots groups %offsets {always, buffer = 0.75 : f64} : (tensor<16x6xf32>, tensor<8x2xi32>, tensor<5xi32>) -> (tensor<16x6xf32>, tensor<5xi32>)
  %h = graph.grouped_matmul %in, %w groups %theirs {transposed} : (tensor<16x6xf32>, tensor<4x6x6xf32>, tensor<5xi32>) -> tensor<16x6xf32>
  %a = graph.silu %h : tensor<16x6xf32>
  %back = graph.return_rows %a slots %slots groups %offsets {always, buffer = 0.75 : f64} : (tensor<16x6xf32>, tensor<8x2xi32>, tensor<5xi32>) -> tensor<16x6xf32>
  %out = graph.combine_rows %back slots %slots weights %weights : (tensor<16x6xf32>, tensor<8x2xi32>, tensor<8x2xf32>) -> tensor<8x6xf32>
  %y = graph.reshape %out : tensor<8x6xf32> -> tensor<2x4x6xf32>
  return %y : tensor<2x4x6xf32>
}
