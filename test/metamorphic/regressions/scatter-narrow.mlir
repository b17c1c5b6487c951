// A scatter adds in f32: onto bf16, every addition was rounded.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 3408 : i64} {
  func.func @f(%arg0: tensor<2x15x3x17xbf16> {metamorphic.range = array<f64: -1.000000e+00, 1.000000e+00>}, %arg1: tensor<8x17xbf16> {metamorphic.range = array<f64: -8.000000e+00, 8.000000e+00>}, %arg2: tensor<2x15x3xi64> {metamorphic.range = array<f64: 0.000000e+00, 7.000000e+00>}) -> tensor<8x17xbf16> {
    %0 = graph.scatter_add %arg0 at %arg2 onto %arg1 : tensor<2x15x3x17xbf16>, tensor<2x15x3xi64>, tensor<8x17xbf16>
    return %0 : tensor<8x17xbf16>
  }
}
