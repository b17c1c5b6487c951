// One run of memory that starts at no multiple of 64 bytes is no buffer of a
// kernel: it is copied.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 3435 : i64} {
  func.func @f(%arg0: tensor<i32> {metamorphic.range = array<f64: 0.000000e+00, 1.350000e+02>}, %arg1: tensor<17x17x1x17xf32> {metamorphic.range = array<f64: -8.000000e+00, 8.000000e+00>}) -> tensor<17xf32> {
    %0 = graph.slice %arg1 [5, 0, 0, 0] : tensor<17x17x1x17xf32> -> tensor<8x17x1x17xf32>
    %1 = graph.reshape %0 : tensor<8x17x1x17xf32> -> tensor<136x17xf32>
    %2 = graph.embedding %1, %arg0 : (tensor<136x17xf32>, tensor<i32>) -> tensor<17xf32>
    return %2 : tensor<17xf32>
  }
}
