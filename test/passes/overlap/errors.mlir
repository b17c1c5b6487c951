// RUN: tessera-opt %s --split-input-file --verify-diagnostics --overlap-collectives --verify-overlap

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @no_number(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{has no dist.start; run order-collectives before}}
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @twice(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    // expected-error @below {{has the same dist.start, 0, as another op of its block; run bucket-collectives before}}
    %z = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    return %y, %z : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @backwards(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 1 : i64} : tensor<4xf32> -> tensor<4xf32>
    // expected-error @below {{needs the result of a collective that starts after it, by dist.start}}
    %z = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    return %z : tensor<4xf32>
  }
}

// -----

module {
  // expected-error @below {{'dist.start' must be a non-negative i64}}
  func.func @negative() attributes {dist.start = -1 : i64} {
    return
  }
}
