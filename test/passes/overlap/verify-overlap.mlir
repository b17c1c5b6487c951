// RUN: tessera-opt %s --split-input-file --verify-diagnostics --verify-overlap

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @left(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{still has dist.start; run overlap-collectives before}}
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @lost(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{is started, but not waited for exactly once}}
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> !dist.pending<tensor<4xf32>>
    return %x : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @elsewhere(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{is waited for in another block than the one that starts it}}
    %t = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> !dist.pending<tensor<4xf32>>
    %r = graph.loop 2 (%i, %acc = %x) : (tensor<4xf32>) {
      %y = dist.wait %t : <tensor<4xf32>> -> tensor<4xf32>
      graph.yield %y : tensor<4xf32>
    }
    return %r : tensor<4xf32>
  }
}
