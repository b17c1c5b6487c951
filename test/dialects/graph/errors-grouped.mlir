// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of grouped contractions.

func.func @f(%x: tensor<10x4xf32>, %w: tensor<3x4xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects an rhs of rank 3, got 'tensor<3x4xf32>'}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10x4xf32>, tensor<3x4xf32>, tensor<4xi32>) -> tensor<10x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %w: tensor<0x4x5xf32>, %o: tensor<1xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects at least one group}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10x4xf32>, tensor<0x4x5xf32>, tensor<1xi32>) -> tensor<10x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10xf32>, %w: tensor<3x4x5xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects an lhs of [rows, width] or [groups, capacity, width], got 'tensor<10xf32>'}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10xf32>, tensor<3x4x5xf32>, tensor<4xi32>) -> tensor<10x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %w: tensor<3x4x5xf32>, %o: tensor<3xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects an lhs of 3 groups, got 2}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<2x6x4xf32>, tensor<3x4x5xf32>, tensor<3xi32>) -> tensor<2x6x5xf32>
  return
}

// -----

func.func @f(%x: tensor<3x6x4xf32>, %w: tensor<3x4x5xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects counts of shape [3], got [4]}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<3x6x4xf32>, tensor<3x4x5xf32>, tensor<4xi32>) -> tensor<3x6x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %w: tensor<3x4x5xf32>, %o: tensor<3xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects offsets of shape [4], got [3]}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10x4xf32>, tensor<3x4x5xf32>, tensor<3xi32>) -> tensor<10x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %w: tensor<3x4x5xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op sums over 4 of lhs and 5 of rhs}}
  %0 = graph.grouped_matmul %x, %w groups %o {transposed} : (tensor<10x4xf32>, tensor<3x4x5xf32>, tensor<4xi32>) -> tensor<10x4xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %w: tensor<3x4x5xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op has result type 'tensor<10x4xf32>', expected 'tensor<10x5xf32>'}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10x4xf32>, tensor<3x4x5xf32>, tensor<4xi32>) -> tensor<10x4xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %w: tensor<3x4x5xbf16>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects one element type for lhs and rhs, got 'f32' and 'bf16'}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10x4xf32>, tensor<3x4x5xbf16>, tensor<4xi32>) -> tensor<10x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %w: tensor<3x4x5xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_matmul' op expects the result in the element type of the factors or a wider one, got 'bf16' for 'f32'}}
  %0 = graph.grouped_matmul %x, %w groups %o : (tensor<10x4xf32>, tensor<3x4x5xf32>, tensor<4xi32>) -> tensor<10x5xbf16>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %y: tensor<10x5xf32>, %o: tensor<4x1xi32>) {
  // expected-error @+1 {{'graph.grouped_outer' op expects groups of rank 1, got 'tensor<4x1xi32>'}}
  %0 = graph.grouped_outer %x, %y groups %o : (tensor<10x4xf32>, tensor<10x5xf32>, tensor<4x1xi32>) -> tensor<3x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %y: tensor<10x5xf32>, %o: tensor<1xi32>) {
  // expected-error @+1 {{'graph.grouped_outer' op expects at least one group}}
  %0 = graph.grouped_outer %x, %y groups %o : (tensor<10x4xf32>, tensor<10x5xf32>, tensor<1xi32>) -> tensor<0x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %y: tensor<10x5xf32>, %o: tensor<2xi32>) {
  // expected-error @+1 {{'graph.grouped_outer' op has result type 'tensor<3x4x5xf32>', expected 'tensor<1x4x5xf32>'}}
  %0 = graph.grouped_outer %x, %y groups %o : (tensor<10x4xf32>, tensor<10x5xf32>, tensor<2xi32>) -> tensor<3x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %y: tensor<9x5xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_outer' op expects an rhs of shape [10, 5], got [9, 5]}}
  %0 = graph.grouped_outer %x, %y groups %o : (tensor<10x4xf32>, tensor<9x5xf32>, tensor<4xi32>) -> tensor<3x4x5xf32>
  return
}

// -----

func.func @f(%x: tensor<10x4xf32>, %y: tensor<10x5xbf16>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.grouped_outer' op expects one element type for lhs and rhs, got 'f32' and 'bf16'}}
  %0 = graph.grouped_outer %x, %y groups %o : (tensor<10x4xf32>, tensor<10x5xbf16>, tensor<4xi32>) -> tensor<3x4x5xf32>
  return
}
