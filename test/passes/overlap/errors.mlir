// RUN: tessera-opt %s --split-input-file --verify-diagnostics --overlap-collectives --verify-overlap

module {
  dist.mesh @mesh [#dist.axis<"data" = 2 memory>]
  func.func @no_number(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{has no dist.start, which order-collectives gives it}}
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2 memory>]
  func.func @twice(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    // expected-error @below {{starts as number 0 of its block, as another does; bucket-collectives makes one of them}}
    %z = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    return %y, %z : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2 memory>]
  func.func @backwards(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 1 : i64} : tensor<4xf32> -> tensor<4xf32>
    // expected-error @below {{needs the result of a collective that starts after it, by dist.start}}
    %z = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<4xf32> -> tensor<4xf32>
    return %z : tensor<4xf32>
  }
}

// -----

module {
  // expected-error @below {{'dist.start' is a number, an i64 from 0 on}}
  func.func @negative() attributes {dist.start = -1 : i64} {
    return
  }
}
