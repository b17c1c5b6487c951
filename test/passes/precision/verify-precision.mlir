// RUN: tessera-opt %s --split-input-file --verify-diagnostics --verify-precision=compute=bf16
// What holds, then one case for each branch of the verifier. Vectors stay f32, and so does what takes no parameters.

func.func private @layer(%x: tensor<4x8xbf16>, %g: tensor<8xf32>, %w: tensor<8x8xbf16>) -> tensor<4x8xbf16> attributes {graph.block} {
  %n = graph.rms_norm %x, %g eps 1.0e-5 : tensor<4x8xbf16>, tensor<8xf32>
  %y = graph.einsum "mk,kn->mn" %n, %w : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xf32>
  %a = graph.exp %y : tensor<4x8xf32>
  %z = graph.convert %a : tensor<4x8xf32> -> tensor<4x8xbf16>
  return %z : tensor<4x8xbf16>
}
func.func private @declared(tensor<4x8xf32>)
func.func @init(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
  %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @logits(%e: tensor<8x8xf32> {graph.state = "e", graph.role = #graph<role parameter>}, %t: tensor<4xi32>) -> tensor<4x8xf32> {
  %w = graph.convert %e : tensor<8x8xf32> -> tensor<8x8xbf16>
  %r = graph.embedding %e, %t : (tensor<8x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %x = graph.convert %r : tensor<4x8xf32> -> tensor<4x8xbf16>
  %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @contraction(%w: tensor<8x8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{operand 0 is 'tensor<4x8xf32>', but the compute type is bf16}}
  %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @composite(%g: tensor<8xf32> {graph.state = "g", graph.role = #graph<role parameter>}, %x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{operand 0 is 'tensor<4x8xf32>', but the compute type is bf16}}
  %y = graph.rms_norm %x, %g eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{parameter 0 is 'tensor<8x8xbf16>', but master weights are f32}}
func.func @master(%w: tensor<8x8xbf16> {graph.state = "w", graph.role = #graph<role parameter>}) {
  return
}

// -----

// expected-error @+1 {{argument 1 is 'tensor<4x8xf32>', but blocks take bf16}}
func.func private @argument(%g: tensor<8xf32>, %x: tensor<4x8xf32>) attributes {graph.block} {
  return
}

// -----

// expected-error @+1 {{result 0 is 'tensor<4x8xf32>', but blocks return bf16}}
func.func private @result(%x: tensor<4x8xbf16>) -> tensor<4x8xf32> attributes {graph.block} {
  %y = graph.convert %x : tensor<4x8xbf16> -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func private @loop(%x: tensor<4x8xbf16>) -> tensor<4x8xbf16> attributes {graph.block} {
  // expected-error @+1 {{has a region; loops are made after precision}}
  %y = graph.loop 4 (%i, %c = %x) : (tensor<4x8xbf16>) {
    graph.yield %c : tensor<4x8xbf16>
  }
  return %y : tensor<4x8xbf16>
}

// -----

func.func private @scalar(%x: tensor<4x8xbf16>) attributes {graph.block} {
  // expected-error @+1 {{has values that are not tensors; a graph function has no others}}
  %c = arith.constant 1.0 : f32
  return
}
