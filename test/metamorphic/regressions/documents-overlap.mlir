// Queries of two first keys see a key in common: one block adds to its gradient.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 63833 : i64} {
  func.func @f(%q: tensor<1x2x4x3xf32> {metamorphic.range = array<f64: 0.0, 1.0>}, %kv: tensor<1x2x2x3xf32> {metamorphic.range = array<f64: -1.0, 1.0>}, %start: tensor<i32> {metamorphic.range = array<f64: 1.0, 1.0>}, %out: tensor<1x2x4x3xf32> {metamorphic.range = array<f64: -0.90584379434585571, 0.90795481204986572>}, %lse: tensor<1x4x2xf32> {metamorphic.range = array<f64: -0.0025342793212320735, 1.2348839103928797>}) -> (tensor<1x2x4x3xf32>, tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>) {
    %first = graph.iota dim 1 : tensor<1x2xi32>
    %dQuery, %dKey, %dValue = graph.attention_grad %q, %kv, %kv, %out, %lse, %q start %start first %first : tensor<1x2xi32> scale 0.57735026918962584 {causal} : tensor<1x2x4x3xf32>, tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>, tensor<1x2x4x3xf32>, tensor<1x4x2xf32>, tensor<1x2x4x3xf32>, tensor<i32>
    return %dQuery, %dKey, %dValue : tensor<1x2x4x3xf32>, tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>
  }
}
