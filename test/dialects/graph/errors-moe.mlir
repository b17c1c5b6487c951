// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of routing.

func.func @f(%s: tensor<f32>) {
  // expected-error @+1 {{'graph.top_k' op expects scores of rank 1 or more}}
  %0 = graph.top_k %s : (tensor<f32>) -> tensor<2xi32>
  return
}

// -----

func.func @f(%s: tensor<4x8xf32>) {
  // expected-error @+1 {{'graph.top_k' op expects indices of rank 1 or more}}
  %0 = graph.top_k %s : (tensor<4x8xf32>) -> tensor<i32>
  return
}

// -----

func.func @f(%s: tensor<4x8xf32>) {
  // expected-error @+1 {{'graph.top_k' op expects scores and indices of the same rows, got 'tensor<4x8xf32>' and 'tensor<3x2xi32>'}}
  %0 = graph.top_k %s : (tensor<4x8xf32>) -> tensor<3x2xi32>
  return
}

// -----

func.func @f(%s: tensor<4x8xf32>) {
  // expected-error @+1 {{'graph.top_k' op expects 1 to 8 indices a row, got 9}}
  %0 = graph.top_k %s : (tensor<4x8xf32>) -> tensor<4x9xi32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %i: tensor<3x2xi32>) {
  // expected-error @+1 {{'graph.take_along_axis' op expects input and indices of the same rows, got 'tensor<4x8xf32>' and 'tensor<3x2xi32>'}}
  %0 = graph.take_along_axis %x at %i : (tensor<4x8xf32>, tensor<3x2xi32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>, %i: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.take_along_axis' op has result type 'tensor<4x3xf32>', expected 'tensor<4x2xf32>'}}
  %0 = graph.take_along_axis %x at %i : (tensor<4x8xf32>, tensor<4x2xi32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%i: tensor<8xi32>) {
  // expected-error @+1 {{'graph.rank_in_group' op expects ids of rank 2, got 'tensor<8xi32>'}}
  %0 = graph.rank_in_group %i groups 3 : (tensor<8xi32>) -> tensor<8xi32>
  return
}

// -----

func.func @f(%i: tensor<2x8xi32>) {
  // expected-error @+1 {{'graph.rank_in_group' op has result type 'tensor<2x7xi32>', expected 'tensor<2x8xi32>'}}
  %0 = graph.rank_in_group %i groups 3 : (tensor<2x8xi32>) -> tensor<2x7xi32>
  return
}

// -----

func.func @f(%i: tensor<2x8xi32>) {
  // expected-error @+1 {{'graph.rank_in_group' op expects at least one group}}
  %0 = graph.rank_in_group %i groups 0 : (tensor<2x8xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%i: tensor<2x8xi32>, %s: tensor<2x4xf32>) {
  // expected-error @+1 {{'graph.rank_in_group' op expects scores of shape [2, 8], got [2, 4]}}
  %0 = graph.rank_in_group %i by %s groups 3 : (tensor<2x8xi32>, tensor<2x4xf32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%i: tensor<2x8xi32>) {
  // expected-error @+1 {{'graph.group_rows' op expects offsets of rank 1, got 'tensor<2x2xi32>'}}
  %0, %1 = graph.group_rows %i : (tensor<2x8xi32>) -> (tensor<2x2xi32>, tensor<2x8xi32>)
  return
}

// -----

func.func @f(%i: tensor<2x8xi32>) {
  // expected-error @+1 {{'graph.group_rows' op expects at least one group}}
  %0, %1 = graph.group_rows %i : (tensor<2x8xi32>) -> (tensor<1xi32>, tensor<2x8xi32>)
  return
}

// -----

func.func @f(%i: tensor<2x8xi32>) {
  // expected-error @+1 {{'graph.group_rows' op expects slots of shape [2, 8], got [16]}}
  %0, %1 = graph.group_rows %i : (tensor<2x8xi32>) -> (tensor<4xi32>, tensor<16xi32>)
  return
}

// -----

func.func @f(%x: tensor<4x3x2xf32>, %p: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects an input of rank 2, got 'tensor<4x3x2xf32>'}}
  %0 = graph.dispatch_rows %x slots %p : (tensor<4x3x2xf32>, tensor<4x2xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %p: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects a result of rank 2, got 'tensor<24xf32>'}}
  %0 = graph.dispatch_rows %x slots %p : (tensor<4x3xf32>, tensor<4x2xi32>) -> tensor<24xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %p: tensor<4xi32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects slots of rank 2, got 'tensor<4xi32>'}}
  %0 = graph.dispatch_rows %x slots %p : (tensor<4x3xf32>, tensor<4xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<5x3xf32>, %p: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects slots of shape [5, 2], got [4, 2]}}
  %0 = graph.dispatch_rows %x slots %p : (tensor<5x3xf32>, tensor<4x2xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<4x0xi32>) {
  // expected-error @+1 {{'graph.combine_rows' op expects at least one place a token}}
  %0 = graph.combine_rows %x slots %p : (tensor<8x3xf32>, tensor<4x0xi32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.combine_rows' op has result type 'tensor<5x3xf32>', expected 'tensor<4x3xf32>'}}
  %0 = graph.combine_rows %x slots %p : (tensor<8x3xf32>, tensor<4x2xi32>) -> tensor<5x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %p: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects a result of shape [8, 3], got [8, 5]}}
  %0 = graph.dispatch_rows %x slots %p : (tensor<4x3xf32>, tensor<4x2xi32>) -> tensor<8x5xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %p: tensor<4x2xi32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects weights of shape [4, 2], got [4]}}
  %0 = graph.dispatch_rows %x slots %p weights %w : (tensor<4x3xf32>, tensor<4x2xi32>, tensor<4xf32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %p: tensor<4x2xi32>, %w: tensor<4x2xbf16>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects the weights in the element type of the input or a wider one, got 'bf16' for 'f32'}}
  %0 = graph.dispatch_rows %x slots %p weights %w : (tensor<4x3xf32>, tensor<4x2xi32>, tensor<4x2xbf16>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<4x3xf32>, %p: tensor<4x2xi32>) {
  // expected-error @+1 {{'graph.dispatch_rows' op expects one element type for input and result, got 'f32' and 'bf16'}}
  %0 = graph.dispatch_rows %x slots %p : (tensor<4x3xf32>, tensor<4x2xi32>) -> tensor<8x3xbf16>
  return
}

// -----

func.func @f(%x: tensor<8xf32>, %p: tensor<4x2xi32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.return_rows' op expects rows of rank 2, got 'tensor<8xf32>'}}
  %0 = graph.return_rows %x slots %p groups %o : (tensor<8xf32>, tensor<4x2xi32>, tensor<4xi32>) -> tensor<8xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<8xi32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.return_rows' op expects slots of rank 2, got 'tensor<8xi32>'}}
  %0 = graph.return_rows %x slots %p groups %o : (tensor<8x3xf32>, tensor<8xi32>, tensor<4xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<4x2xi32>, %o: tensor<4x1xi32>) {
  // expected-error @+1 {{'graph.return_rows' op expects groups of rank 1, got 'tensor<4x1xi32>'}}
  %0 = graph.return_rows %x slots %p groups %o : (tensor<8x3xf32>, tensor<4x2xi32>, tensor<4x1xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<4x2xi32>, %o: tensor<1xi32>) {
  // expected-error @+1 {{'graph.return_rows' op expects at least one group}}
  %0 = graph.return_rows %x slots %p groups %o : (tensor<8x3xf32>, tensor<4x2xi32>, tensor<1xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @f(%x: tensor<9x3xf32>, %p: tensor<4x2xi32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.return_rows' op expects rows of shape [8, 3], got [9, 3]}}
  %0 = graph.return_rows %x slots %p groups %o : (tensor<9x3xf32>, tensor<4x2xi32>, tensor<4xi32>) -> tensor<9x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<4x2xi32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.return_rows' op has result type 'tensor<8x4xf32>', expected 'tensor<8x3xf32>'}}
  %0 = graph.return_rows %x slots %p groups %o : (tensor<8x3xf32>, tensor<4x2xi32>, tensor<4xi32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<8x3xf32>, %p: tensor<4x2xi32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'graph.send_rows' op has result type 'tensor<5xi32>', expected 'tensor<4xi32>'}}
  %0, %1 = graph.send_rows %x slots %p groups %o : (tensor<8x3xf32>, tensor<4x2xi32>, tensor<4xi32>) -> (tensor<8x3xf32>, tensor<5xi32>)
  return
}
