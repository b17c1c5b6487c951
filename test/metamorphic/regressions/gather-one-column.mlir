// A table of one column: its rows went along the lanes of a tile, which reads
// one row only.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 278 : i64} {
  func.func @f(%arg0: tensor<3x1xbf16> {metamorphic.range = array<f64: 5.000000e-01, 2.000000e+00>}, %arg1: tensor<2x2xi32> {metamorphic.range = array<f64: 0.000000e+00, 2.000000e+00>}) -> tensor<2x2x1xbf16> {
    %0 = graph.embedding %arg0, %arg1 : (tensor<3x1xbf16>, tensor<2x2xi32>) -> tensor<2x2x1xbf16>
    return %0 : tensor<2x2x1xbf16>
  }
}
