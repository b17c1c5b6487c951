// One step of a linear model with momentum: loss = Σ (x w)² / 2 over sequences.
func.func private @update(%w: tensor<6x10xf32>, %g: tensor<6x10xf32>, %m: tensor<6x10xf32>, %lr: tensor<f32>) -> (tensor<6x10xf32>, tensor<6x10xf32>) {
  %n = graph.add %m, %g : tensor<6x10xf32>
  %r = graph.broadcast %lr dims [] : tensor<f32> -> tensor<6x10xf32>
  %s = graph.mul %n, %r : tensor<6x10xf32>
  %v = graph.sub %w, %s : tensor<6x10xf32>
  return %v, %n : tensor<6x10xf32>, tensor<6x10xf32>
}

func.func @train_step(%w: tensor<6x10xf32> {graph.role = #graph<role parameter>, graph.state = "w"},
                      %m: tensor<6x10xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum"},
                      %table: tensor<9x6xf32> {graph.input = "table"}, %tokens: tensor<4x5xi32> {graph.input = "tokens"}, %lr: tensor<f32> {graph.input = "lr"})
    -> (tensor<6x10xf32> {graph.role = #graph<role parameter>, graph.state = "w"}, tensor<6x10xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum"}) attributes {graph.program = #graph.program<train_step>} {
  %x = graph.embedding %table, %tokens : (tensor<9x6xf32>, tensor<4x5xi32>) -> tensor<4x5x6xf32>
  %y = graph.einsum "btk,kn->btn" %x, %w : (tensor<4x5x6xf32>, tensor<6x10xf32>) -> tensor<4x5x10xf32>
  %g = graph.einsum "btk,btn->kn" %x, %y : (tensor<4x5x6xf32>, tensor<4x5x10xf32>) -> tensor<6x10xf32>
  %r:2 = func.call @update(%w, %g, %m, %lr) : (tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>, tensor<f32>) -> (tensor<6x10xf32>, tensor<6x10xf32>)
  return %r#0, %r#1 : tensor<6x10xf32>, tensor<6x10xf32>
}
