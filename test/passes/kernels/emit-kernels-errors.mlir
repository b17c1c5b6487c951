// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx2 --split-input-file --verify-diagnostics

func.func @two(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  // expected-error @+1 {{cluster 'two' cannot be tiled: graph.reduce at loc("}}
  %a, %b = graph.cluster row "two"(%x) : (tensor<4x8xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  ^bb0(%i: tensor<4x8xf32>):
    %s = graph.reduce %i sum dims [1] : tensor<4x8xf32> -> tensor<4xf32>
    %t = graph.reduce %i sum dims [0] : tensor<4x8xf32> -> tensor<8xf32>
    graph.yield %s, %t : tensor<4xf32>, tensor<8xf32>
  }
  return %a, %b : tensor<4xf32>, tensor<8xf32>
}

// -----

// Rows are gathered from a whole table, not from one that is still computed.
func.func @table(%x: tensor<6x4xf32>, %ids: tensor<3xi32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{cannot be computed in place in its cluster}}
  %a = graph.cluster gather "table"(%x, %ids) : (tensor<6x4xf32>, tensor<3xi32>) -> tensor<3x4xf32> {
  ^bb0(%i: tensor<6x4xf32>, %j: tensor<3xi32>):
    %n = graph.neg %i : tensor<6x4xf32>
    %e = graph.embedding %n, %j : (tensor<6x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
    graph.yield %e : tensor<3x4xf32>
  }
  return %a : tensor<3x4xf32>
}

// -----

// Of results of different sizes none decides what a cluster runs over.
func.func @sizes(%x: tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<4xf32>) {
  // expected-error @+1 {{cannot be computed in place in its cluster}}
  %a, %b = graph.cluster elementwise "sizes"(%x) : (tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<4xf32>) {
  ^bb0(%i: tensor<6x4xf32>):
    %n = graph.neg %i : tensor<6x4xf32>
    %s = graph.slice %i [1, 0] : tensor<6x4xf32> -> tensor<1x4xf32>
    %r = graph.reshape %s : tensor<1x4xf32> -> tensor<4xf32>
    graph.yield %n, %r : tensor<6x4xf32>, tensor<4xf32>
  }
  return %a, %b : tensor<6x4xf32>, tensor<4xf32>
}
