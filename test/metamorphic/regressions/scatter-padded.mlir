// Updates that are padded come in several pieces, which no scatter computes.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 3094 : i64} {
  func.func @f(%arg0: tensor<1x15x32xf32> {metamorphic.range = array<f64: 5.000000e-01, 2.000000e+00>}, %arg1: tensor<4x33xf32> {metamorphic.range = array<f64: -8.000000e+00, 8.000000e+00>}, %arg2: tensor<1x22xi32> {metamorphic.range = array<f64: 0.000000e+00, 3.000000e+00>}) -> tensor<4x33xf32> {
    %0 = graph.pad %arg0 low [0, 0, 1] : tensor<1x15x32xf32> -> tensor<1x22x33xf32>
    %1 = graph.scatter_add %0 at %arg2 onto %arg1 : tensor<1x22x33xf32>, tensor<1x22xi32>, tensor<4x33xf32>
    return %1 : tensor<4x33xf32>
  }
}
