// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifier of graph.discounted_sum.

func.func @f(%x: tensor<f32>, %s: tensor<i32>) {
  // expected-error @+1 {{'graph.discounted_sum' op expects an input of rank 1 or more}}
  %0 = graph.discounted_sum %x, %s discount 0.5 : tensor<f32>, tensor<i32>
  return
}

// -----

func.func @f(%x: tensor<2x5xf32>, %s: tensor<2x5xi32>) {
  // expected-error @+1 {{'graph.discounted_sum' op expects a discount of 0 to 1, got 1.500000e+00}}
  %0 = graph.discounted_sum %x, %s discount 1.5 : tensor<2x5xf32>, tensor<2x5xi32>
  return
}

// -----

func.func @f(%x: tensor<2x5xf32>, %s: tensor<5xi32>) {
  // expected-error @+1 {{'graph.discounted_sum' op expects segments of shape [2, 5], got [5]}}
  %0 = graph.discounted_sum %x, %s discount 0.5 : tensor<2x5xf32>, tensor<5xi32>
  return
}
