// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of constants, re-indexing, contractions and reductions, gather,
// scatter and random numbers.

func.func @f(%x: tensor<2xi1>) {
  // expected-error @+1 {{'graph.add' op operand #0 must be statically shaped tensor}}
  %0 = graph.add %x, %x : tensor<2xi1>
  return
}

// -----

func.func @f(%x: tensor<?xf32>) {
  // expected-error @+1 {{'graph.neg' op operand #0 must be statically shaped tensor}}
  %0 = graph.neg %x : tensor<?xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.and' op operand #0 must be statically shaped tensor}}
  %0 = graph.and %x, %x : tensor<2x3xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'graph.constant' op expects dense<...> elements}}
  %0 = graph.constant sparse<0, 1.0> : tensor<4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{'graph.iota' op names dimension 2 of a tensor of rank 2}}
  %0 = graph.iota dim 2 : tensor<2x3xi32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.convert' op cannot convert 'f32' to a boolean; compare with zero instead}}
  %0 = graph.convert %x : tensor<2x3xf32> -> tensor<2x3xi1>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{all non-scalar operands/results must have the same shape}}
  %0 = graph.convert %x : tensor<2x3xf32> -> tensor<3x2xbf16>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.reshape' op cannot make 7 elements of 6}}
  %0 = graph.reshape %x : tensor<2x3xf32> -> tensor<7xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.reshape' op expects one element type for input and result, got 'f32' and 'bf16'}}
  %0 = graph.reshape %x : tensor<2x3xf32> -> tensor<6xbf16>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.transpose' op expects a permutation of 2 dimensions, got [0, 0]}}
  %0 = graph.transpose %x [0, 0] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.transpose' op has result type 'tensor<2x3xf32>', expected 'tensor<3x2xf32>'}}
  %0 = graph.transpose %x [1, 0] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.transpose' op has result type 'tensor<3x2xf64>', expected 'tensor<3x2xf32>'}}
  %0 = graph.transpose %x [1, 0] : tensor<2x3xf32> -> tensor<3x2xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.broadcast' op expects one of dims for each of 2 input dimensions, got 1}}
  %0 = graph.broadcast %x dims [0] : tensor<2x3xf32> -> tensor<2x3x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.broadcast' op names dimension 3 of a tensor of rank 3}}
  %0 = graph.broadcast %x dims [0, 3] : tensor<2x3xf32> -> tensor<2x3x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.broadcast' op names dimension -1 of a tensor of rank 3}}
  %0 = graph.broadcast %x dims [-1, 1] : tensor<2x3xf32> -> tensor<2x3x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.broadcast' op expects strictly increasing dims, got [1, 0]}}
  %0 = graph.broadcast %x dims [1, 0] : tensor<2x3xf32> -> tensor<3x2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.broadcast' op cannot place input dimension 0 of size 2 in result dimension 0 of size 5}}
  %0 = graph.broadcast %x dims [0, 1] : tensor<2x3xf32> -> tensor<5x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.broadcast' op expects one element type}}
  %0 = graph.broadcast %x dims [0, 1] : tensor<2x3xf32> -> tensor<2x3x4xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.slice' op expects input and result of one rank}}
  %0 = graph.slice %x [0, 0] : tensor<2x3xf32> -> tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.slice' op expects one start for each of 2 dimensions, got 1}}
  %0 = graph.slice %x [0] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.slice' op dimension 1: 2 elements from 2 do not fit into 3}}
  %0 = graph.slice %x [0, 2] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.slice' op dimension 0: 2 elements from -1 do not fit into 2}}
  %0 = graph.slice %x [-1, 0] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.slice' op dimension 0: 2 elements from 9223372036854775807 do not fit into 2}}
  %0 = graph.slice %x [9223372036854775807, 0] : tensor<2x3xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.slice' op expects one element type}}
  %0 = graph.slice %x [0, 0] : tensor<2x3xf32> -> tensor<2x2xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.pad' op dimension 1: 3 elements from 2 do not fit into 4}}
  %0 = graph.pad %x low [0, 2] : tensor<2x3xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.pad' op expects one low for each of 2 dimensions, got 3}}
  %0 = graph.pad %x low [0, 0, 0] : tensor<2x3xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.pad' op expects one element type}}
  %0 = graph.pad %x low [0, 0] : tensor<2x3xf32> -> tensor<2x4xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.concat' op expects at least one input}}
  %0 = graph.concat dim 0 : () -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.concat' op names dimension 2 of a tensor of rank 2}}
  %0 = graph.concat %x dim 2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3xf32>) {
  // expected-error @+1 {{'graph.concat' op expects inputs of rank 2, got 'tensor<3xf32>'}}
  %0 = graph.concat %x, %y dim 0 : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<1x4xf32>) {
  // expected-error @+1 {{'graph.concat' op expects an input of shape [1, 3], got [1, 4]}}
  %0 = graph.concat %x, %y dim 0 : (tensor<2x3xf32>, tensor<1x4xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.concat' op has result type 'tensor<5x3xf32>', expected 'tensor<4x3xf32>'}}
  %0 = graph.concat %x, %x dim 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<5x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.concat' op expects one element type}}
  %0 = graph.concat %x dim 0 : (tensor<2x3xf32>) -> tensor<2x3xf64>
  return
}

// -----

func.func @f(%x: tensor<f32>, %i: tensor<i32>) {
  // expected-error @+1 {{'graph.dynamic_slice' op expects an input of rank 1 or more}}
  %0 = graph.dynamic_slice %x[%i] : tensor<f32>, tensor<i32> -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %i: tensor<i32>) {
  // expected-error @+1 {{'graph.dynamic_slice' op has result type 'tensor<2xf32>', expected 'tensor<3xf32>'}}
  %0 = graph.dynamic_slice %x[%i] : tensor<2x3xf32>, tensor<i32> -> tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %i: tensor<1xi32>) {
  // expected-error @+1 {{'graph.dynamic_slice' op operand #1 must be 0D tensor}}
  %0 = graph.dynamic_slice %x[%i] : tensor<2x3xf32>, tensor<1xi32> -> tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %i: tensor<i32>, %u: tensor<2xf32>) {
  // expected-error @+1 {{'graph.dynamic_update' op expects an update of shape [3], got [2]}}
  %0 = graph.dynamic_update %u into %x[%i] : tensor<2xf32>, tensor<i32> -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{expected an equation of the form}}
  %0 = graph.einsum "ij-ik" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{expected an equation of the form}}
  %0 = graph.einsum "ij->ik" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{dimensions are lower-case labels, got 'J'}}
  %0 = graph.einsum "iJ,jk->ik" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{label 'i' repeats within one term}}
  %0 = graph.einsum "ii,jk->ik" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{label 'z' of the result is in neither input}}
  %0 = graph.einsum "ij,jk->iz" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{label 'j' is in one input alone}}
  %0 = graph.einsum "ij,kl->il" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{label 'k' is in one input alone}}
  %0 = graph.einsum "ij,jk->i" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{names 3 dimensions of its lhs, which is 'tensor<2x3xf32>'}}
  %0 = graph.einsum "ijk,jk->ij" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{names 1 dimensions of its rhs}}
  %0 = graph.einsum "ij,j->ij" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{dimension 'i' is 2 in lhs and 3 in rhs}}
  %0 = graph.einsum "ij,ij->ij" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{'graph.einsum' op has result type 'tensor<2x4xf64>', expected 'tensor<4x2xf64>'}}
  %0 = graph.einsum "ij,jk->ki" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xbf16>) {
  // expected-error @+1 {{'graph.einsum' op expects one element type for lhs and rhs, got 'f32' and 'bf16'}}
  %0 = graph.einsum "ij,jk->ik" %x, %y : (tensor<2x3xf32>, tensor<3x4xbf16>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{'graph.einsum' op expects the result in the element type of the inputs or a wider one, got 'bf16' for 'f32'}}
  %0 = graph.einsum "ij,jk->ik" %x, %y : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xbf16>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.reduce' op expects at least one of dims}}
  %0 = graph.reduce %x sum dims [] : tensor<2x3xf32> -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.reduce' op names dimension 2 of a tensor of rank 2}}
  %0 = graph.reduce %x sum dims [2] : tensor<2x3xf32> -> tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x0xf32>) {
  // expected-error @+1 {{'graph.reduce' op has no max of an empty dimension}}
  %0 = graph.reduce %x max dims [1] : tensor<2x0xf32> -> tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.reduce' op has result type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  %0 = graph.reduce %x sum dims [1] : tensor<2x3xf32> -> tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<3xf32>, %i: tensor<2xi32>) {
  // expected-error @+1 {{'graph.embedding' op expects a table of rank 2, got 'tensor<3xf32>'}}
  %0 = graph.embedding %x, %i : (tensor<3xf32>, tensor<2xi32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %i: tensor<5xi32>) {
  // expected-error @+1 {{'graph.embedding' op has result type 'tensor<5x2xf32>', expected 'tensor<5x3xf32>'}}
  %0 = graph.embedding %x, %i : (tensor<2x3xf32>, tensor<5xi32>) -> tensor<5x2xf32>
  return
}

// -----

func.func @f(%x: tensor<3xf32>, %i: tensor<2xi32>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.scatter_add' op expects a base of rank 2}}
  %0 = graph.scatter_add %u at %i onto %x : tensor<2x3xf32>, tensor<2xi32>, tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi32>, %u: tensor<2x4xf32>) {
  // expected-error @+1 {{'graph.scatter_add' op expects updates of shape [2, 3], got [2, 4]}}
  %0 = graph.scatter_add %u at %i onto %x : tensor<2x4xf32>, tensor<2xi32>, tensor<5x3xf32>
  return
}

// -----

func.func @f(%x: tensor<5x3xbf16>, %i: tensor<2xi32>, %u: tensor<2x3xf32>) {
  // expected-error @+1 {{'graph.scatter_add' op expects the base in the element type of the updates or a wider one, got 'bf16' for 'f32'}}
  %0 = graph.scatter_add %u at %i onto %x : tensor<2x3xf32>, tensor<2xi32>, tensor<5x3xbf16>
  return
}

// -----

func.func @f(%s: tensor<i64>) {
  // expected-error @+1 {{'graph.random' op expects a stream in [0, 2^32), got -1}}
  %0 = graph.random uniform stream -1 seed %s step %s : tensor<i64>, tensor<i64> -> tensor<4xf32>
  return
}
