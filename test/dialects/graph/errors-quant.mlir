// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of graph.dequantize and of rows, and of the attribute of what it takes.

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has a result of rank 1, expected a matrix or a stack of them}}
  %0 = graph.dequantize %q, %s bits 4 group 32 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has bits 5, expected 4, 8 or 16}}
  %0 = graph.dequantize %q, %s bits 5 group 32 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has floats of 16 bits, expected 4 or 8}}
  %0 = graph.dequantize %q, %s bits 16 group 32 floats : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x8x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has zero points, which floats do not support}}
  %0 = graph.dequantize %q, %s bits 8 group 32 zeros floats : tensor<4x32x16xi32>, tensor<4x8x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x3x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has floats of 4 bits in groups of 96 for 64 × 128 weights, expected groups of 64}}
  %0 = graph.dequantize %q, %s bits 4 group 96 floats : tensor<4x16x16xi32>, tensor<4x3x16xi32> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x20x16xi32>, %s: tensor<4x2x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has floats of 4 bits in groups of 32 for rows of 144 weights, expected a multiple of 32}}
  %0 = graph.dequantize %q, %s bits 4 group 32 floats : tensor<4x20x16xi32>, tensor<4x2x16xi32> -> tensor<64x144xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x3x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has scales of 'f16', expected 'i32'}}
  %0 = graph.dequantize %q, %s bits 4 group 64 floats : tensor<4x16x16xi32>, tensor<4x3x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has groups of 48, expected a multiple of 32}}
  %0 = graph.dequantize %q, %s bits 4 group 48 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op expects values}}
  %0 = graph.dequantize %q, %s bits 8 group 32 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op expects scales}}
  %0 = graph.dequantize %q, %s bits 4 group 64 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64x128xf32>
  return
}

// -----

// expected-error @+1 {{expects {source, part = "values" or "scales", bits, group, shape} in 'graph.quantized'}}
func.func @f(%q: tensor<4x16x16xi32> {graph.quantized = {source = "w", part = "zeros", bits = 4, group = 32, shape = array<i64: 64, 128>}}) {
  return
}

// -----

// expected-error @+1 {{expects {source, part = "values" or "scales", bits, group, shape} in 'graph.quantized'}}
func.func @f(%q: tensor<4x16x16xi32> {graph.quantized = {source = "w", part = "values", bits = 4, floats, group = 96, shape = array<i64: 64, 128>}}) {
  return
}

// -----

func.func @f(%q: tensor<4x128x16xbf16>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has scales, which bf16 does not support}}
  %0 = graph.dequantize %q, %s bits 16 group 32 : tensor<4x128x16xbf16>, tensor<4x4x16xf16> -> tensor<64x128xbf16>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op lacks scales}}
  %0 = graph.dequantize %q bits 4 group 32 : tensor<4x16x16xi32> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x128x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has values of 'i32', expected 'bf16'}}
  %0 = graph.dequantize %q bits 16 group 32 : tensor<4x128x16xi32> -> tensor<64x128xbf16>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op expects scales}}
  %0 = graph.dequantize %q, %s bits 4 group 32 zeros : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<64x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has a stack of matrices that are transposed}}
  %0 = graph.dequantize %q, %s bits 4 group 32 transposed : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<2x128x32xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x1x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has a stack of matrices of 24 rows, expected a multiple of 16}}
  %0 = graph.dequantize %q, %s bits 4 group 32 floats transposed : tensor<4x16x16xi32>, tensor<4x1x16xi32> -> tensor<2x128x24xf32>
  return
}

// -----

func.func @f(%q: tensor<4x16x16xi32>, %s: tensor<4x4x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has a stack of matrices of 8 rows, expected a multiple of 16}}
  %0 = graph.dequantize %q, %s bits 4 group 32 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<8x8x128xf32>
  return
}

// -----

func.func @f(%q: tensor<4x128x16xbf16>) {
  // expected-error @+1 {{'graph.dequantize' op has zero points, which bf16 does not support}}
  %0 = graph.dequantize %q bits 16 group 32 zeros : tensor<4x128x16xbf16> -> tensor<64x128xbf16>
  return
}

// -----

// expected-error @+1 {{expects {source, part = "values" or "scales", bits, group, shape} in 'graph.quantized'}}
func.func @f(%q: tensor<4x128x16xbf16> {graph.quantized = {source = "w", part = "values", bits = 16, group = 32, shape = array<i64: 64, 128>, zeros}}) {
  return
}

// -----

// Matrices of a stack have whole strips.
// expected-error @+1 {{expects {source, part = "values" or "scales", bits, group, shape} in 'graph.quantized'}}
func.func @f(%q: tensor<4x16x16xi32> {graph.quantized = {source = "w.*", part = "values", bits = 4, group = 32, shape = array<i64: 8, 8, 128>}}) {
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has super-blocks of 3 bits, expected 4, 5 or 6}}
  %0 = graph.dequantize %q, %s bits 3 group 256 super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xi32> -> tensor<64x256xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has super-blocks with zero points, expected neither; their own minima take that place}}
  %0 = graph.dequantize %q, %s bits 4 group 256 zeros super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xi32> -> tensor<64x256xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has super-blocks with floats, expected neither; their own minima take that place}}
  %0 = graph.dequantize %q, %s bits 4 group 256 floats super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xi32> -> tensor<64x256xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has super-blocks of 128 columns, expected a group of 256}}
  %0 = graph.dequantize %q, %s bits 4 group 128 super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xi32> -> tensor<64x256xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op has super-blocks in rows of 384 columns, expected a multiple of 256}}
  %0 = graph.dequantize %q, %s bits 4 group 256 super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xi32> -> tensor<64x384xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xi32>) {
  // expected-error @+1 {{'graph.dequantize' op expects values of shape [4, 40, 16], got [4, 32, 16]}}
  %0 = graph.dequantize %q, %s bits 5 group 256 super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xi32> -> tensor<64x256xf32>
  return
}

// -----

func.func @f(%q: tensor<4x32x16xi32>, %s: tensor<4x5x16xf16>) {
  // expected-error @+1 {{'graph.dequantize' op has scales of 'f16', expected 'i32'}}
  %0 = graph.dequantize %q, %s bits 4 group 256 super_blocks : tensor<4x32x16xi32>, tensor<4x5x16xf16> -> tensor<64x256xf32>
  return
}

// -----

// Super-blocks are whole.
// expected-error @+1 {{expects {source, part = "values" or "scales", bits, group, shape} in 'graph.quantized'}}
func.func @f(%q: tensor<4x48x16xi32> {graph.quantized = {source = "w", part = "values", bits = 4, group = 256, shape = array<i64: 64, 384>, super_blocks}}) {
  return
}

// -----

func.func @f(%x: tensor<f32>) {
  // expected-error @+1 {{'graph.quantize_rows' op expects rows, got a scalar}}
  %0, %1 = graph.quantize_rows %x : tensor<f32> -> tensor<i8>, tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'graph.quantize_rows' op has result type 'tensor<4x7xi8>', expected 'tensor<4x8xi8>'}}
  %0, %1 = graph.quantize_rows %x : tensor<4x8xf32> -> tensor<4x7xi8>, tensor<4x1xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xi8>, %s: tensor<4x8xf32>) {
  // expected-error @+1 {{'graph.dequantize_rows' op expects scales of shape [4, 1], got [4, 8]}}
  %0 = graph.dequantize_rows %q, %s : tensor<4x8xi8>, tensor<4x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8xi8>, %s: tensor<4x1xf32>) {
  // expected-error @+1 {{'graph.dequantize_rows' op has result type 'tensor<4x7xbf16>', expected 'tensor<4x8xbf16>'}}
  %0 = graph.dequantize_rows %q, %s : tensor<4x8xi8>, tensor<4x1xf32> -> tensor<4x7xbf16>
  return
}

// -----

// expected-error @+1 {{expects {bits = 4 or 8, group = a multiple of 32}, or super_blocks of 4 to 6 bits with group = 256, in 'graph.stored'}}
func.func @f(%w: tensor<64x256xf32> {graph.stored = {bits = 8 : i64, group = 256 : i64, super_blocks}}) {
  return
}

// -----

// expected-error @+1 {{expects {bits = 4 or 8, group = a multiple of 32}, or super_blocks of 4 to 6 bits with group = 256, in 'graph.stored'}}
func.func @f(%w: tensor<64x128xf32> {graph.stored = {bits = 4 : i64, group = 48 : i64}}) {
  return
}
