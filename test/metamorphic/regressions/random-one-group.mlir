// Rows of four random numbers: the words of one group are scalars, which are
// interleaved like vectors.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 1719 : i64} {
  func.func @f(%arg0: tensor<4xf32> {metamorphic.range = array<f64: 5.000000e-01, 2.000000e+00>}, %arg1: tensor<i64> {metamorphic.range = array<f64: -4.0e+09, 4.0e+09>}, %arg2: tensor<i64> {metamorphic.range = array<f64: 0.000000e+00, 1.000000e+03>}, %arg3: tensor<i64> {metamorphic.range = array<f64: 0.000000e+00, 5.000000e+01>}) -> tensor<129x4xf32> {
    %0 = graph.broadcast %arg0 dims [1] : tensor<4xf32> -> tensor<129x4xf32>
    %1 = graph.dropout %0 rate 2.500000e-01 stream 28 seed %arg1 step %arg2 offset %arg3 : tensor<129x4xf32>, tensor<i64>, tensor<i64>, tensor<i64>
    return %1 : tensor<129x4xf32>
  }
}
