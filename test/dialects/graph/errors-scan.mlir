// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of scans.

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

// -----

func.func @f(%x: tensor<2x6x4xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects an input of rank 4}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x5xf32>, %c: tensor<2x6x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects a write of rank 4}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x5xf32>, tensor<2x6x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x0xf32>, %c: tensor<2x6x2x0xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects dimensions of at least 1}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x0xf32>, tensor<2x6x2x0xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x0xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x3x5xf32>, %c: tensor<2x6x3x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects heads that are a multiple of the groups, got 4 and 3}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x3x5xf32>, tensor<2x6x3x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x7x2x5xf32>, %c: tensor<2x7x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects a write of shape [2, 6, 2, 5], got [2, 7, 2, 5]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x7x2x5xf32>, tensor<2x7x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x3xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects steps of shape [2, 6, 4], got [2, 6, 3]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x3xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<3xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects a rate of shape [4], got [3]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<3xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<3xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects a skip of shape [4], got [3]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<3xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<3xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects a bias of shape [4], got [3]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<3xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects last states of shape [2, 4, 3, 5], got [2, 4, 3, 6]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x6xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects chunks of 1 to 256 tokens, got 257}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 257 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects limits of steps from 0 on, in order, got 2.000000e+00 and 1.000000e+00}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e chunk 2 {least = 2.0 : f64, most = 1.0 : f64} : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>, %f: tensor<2x6xi32>, %i: tensor<2x4x3x5xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects either documents or initial states}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e first %f from %i chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x6xi32>, tensor<2x4x3x5xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>, %f: tensor<2x5xi32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects first tokens of shape [2, 6], got [2, 5]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e first %f chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x5xi32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>, %n: tensor<3xi32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects counts of shape [2], got [3]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e counts %n chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>, tensor<3xi32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4x3xf32>, %d: tensor<2x6x4xf32>, %a: tensor<4xf32>, %b: tensor<2x6x2x5xf32>, %c: tensor<2x6x2x5xf32>, %k: tensor<4xf32>, %e: tensor<4xf32>, %i: tensor<2x4x5x3xf32>) {
  // expected-error @+1 {{'graph.state_space_scan' op expects initial states of shape [2, 4, 3, 5], got [2, 4, 5, 3]}}
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %e from %i chunk 2 : (tensor<2x6x4x3xf32>, tensor<2x6x4xf32>, tensor<4xf32>, tensor<2x6x2x5xf32>, tensor<2x6x2x5xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4x5x3xf32>) -> (tensor<2x6x4x3xf32>, tensor<2x4x3x5xf32>)
  return
}

// -----

func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{'graph.segment_sum' op expects an input of rank 1 or more}}
  %0 = graph.segment_sum %x : tensor<f32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<2x257xf32>) {
  // expected-error @+1 {{'graph.segment_sum' op expects rows of 1 to 256 elements, got 257}}
  %0 = graph.segment_sum %x : tensor<2x257xf32> -> tensor<2x257x257xf32>
  return
}

// -----

func.func @f(%x: tensor<2x5xf32>) {
  // expected-error @+1 {{'graph.segment_sum' op expects a result of shape [2, 5, 5], got [2, 5, 4]}}
  %0 = graph.segment_sum %x : tensor<2x5xf32> -> tensor<2x5x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x5xf32>) {
  // expected-error @+1 {{'graph.segment_sum' op expects one element type}}
  %0 = graph.segment_sum %x : tensor<2x5xf32> -> tensor<2x5x5xf64>
  return
}
