// A constant without elements was to be written by a kernel.
// RUN: metamorphic %s
module attributes {metamorphic.seed = 20587 : i64} {
  func.func @f(%arg0: tensor<4x0xf32>, %arg1: tensor<4xf32>) -> (tensor<0xi1>, tensor<4x0xf32>, tensor<4xf32>) {
    %0 = graph.constant dense<true> : tensor<0xi1>
    %1 = graph.loop 2 (%i, %carried = %arg0) : (tensor<4x0xf32>) {
      %3 = graph.constant dense<3.0> : tensor<4x0xf32>
      graph.yield %3 : tensor<4x0xf32>
    }
    %2 = graph.neg %arg1 : tensor<4xf32>
    return %0, %1, %2 : tensor<0xi1>, tensor<4x0xf32>, tensor<4xf32>
  }
}
