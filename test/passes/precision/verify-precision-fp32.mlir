// RUN: tessera-opt %s --split-input-file --verify-diagnostics --verify-precision=compute=fp32

func.func @integers_and_f32(%x: tensor<4x8xf32>, %t: tensor<4xi32>) -> tensor<4x8xf32> {
  %y = graph.neg %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @value(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{has a float narrower than f32, but the compute type is fp32}}
  %y = graph.convert %x : tensor<4x8xf32> -> tensor<4x8xbf16>
  return
}

// -----

// expected-error @+1 {{has a float narrower than f32, but the compute type is fp32}}
func.func @argument(%x: tensor<4x8xbf16>) {
  return
}
