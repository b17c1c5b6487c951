// The last panel of 225 columns has one, whose left operand is staged in pairs
// but multiplied in scalars.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 1351 : i64} {
  func.func @f(%arg0: tensor<15x15x3xbf16> {metamorphic.range = array<f64: -2.000000e+00, 2.000000e+00>}, %arg1: tensor<3x15xbf16> {metamorphic.range = array<f64: -1.000000e+00, 2.000000e+00>}) -> tensor<15x15x15xf32> {
    %0 = graph.einsum "ab,ona->bon" %arg1, %arg0 : (tensor<3x15xbf16>, tensor<15x15x3xbf16>) -> tensor<15x15x15xf32>
    return %0 : tensor<15x15x15xf32>
  }
}
