// Two ways through one tensor that no walk has in common: one is stored first.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 61051 : i64} {
  func.func @f(%arg0: tensor<15x8x15xbf16> {metamorphic.range = array<f64: -1.000000e+00, 1.000000e+00>}) -> tensor<8x15x15xbf16> {
    %0 = graph.transpose %arg0 [2, 0, 1] : tensor<15x8x15xbf16> -> tensor<15x15x8xbf16>
    %1 = graph.transpose %0 [2, 0, 1] : tensor<15x15x8xbf16> -> tensor<8x15x15xbf16>
    %2 = graph.reshape %0 : tensor<15x15x8xbf16> -> tensor<8x15x15xbf16>
    %3 = graph.max %1, %2 : tensor<8x15x15xbf16>
    return %3 : tensor<8x15x15xbf16>
  }
}
