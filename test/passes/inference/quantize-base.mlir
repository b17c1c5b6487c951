// RUN: tessera-opt %s --quantize-weights="bits=4 group=64 floats frozen" --split-input-file --verify-diagnostics | FileCheck %s
// RUN: not tessera-opt %s --quantize-weights="bits=4 group=32 zeros frozen" --split-input-file 2>/dev/null | FileCheck %s --check-prefix=INT4

// Matrices of layers that are constant become NF4, and stay frozen; factors, which are trained, and the head stay.

// CHECK-LABEL: func @init
// CHECK-SAME:  -> (tensor<4x128xf32> {{{.*}} graph.state = "a"}, tensor<40x128xf32> {{{.*}} graph.state = "head"})
func.func @init(%seed: tensor<1xi64> {graph.input = "seed"}) -> (
    tensor<32x128xf32> {graph.frozen, graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "w"},
    tensor<4x128xf32> {graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "a"},
    tensor<40x128xf32> {graph.frozen, graph.role = #graph<role parameter>, graph.state = "head"}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<32x128xf32>
  %a = graph.constant dense<1.0> : tensor<4x128xf32>
  %h = graph.constant dense<1.0> : tensor<40x128xf32>
  return %w, %a, %h : tensor<32x128xf32>, tensor<4x128xf32>, tensor<40x128xf32>
}

// INT4-LABEL: func @logits
// INT4-SAME:  %[[Q:[^:]*]]: tensor<2x16x16xi32> {graph.frozen, graph.layer = #graph.layer<0>, graph.quantized = {bits = 4 : i64, group = 32 : i64, part = "values", shape = array<i64: 32, 128>, source = "w", zeros}
// INT4-SAME:  %[[S:[^:]*]]: tensor<2x8x16xf16> {graph.frozen
// INT4:       graph.dequantize %[[Q]], %[[S]] bits 4 group 32 zeros : tensor<2x16x16xi32>, tensor<2x8x16xf16> -> tensor<32x128xf32>

// CHECK-LABEL: func @logits
// CHECK-SAME:  %[[Q:[^:]*]]: tensor<2x16x16xi32> {graph.frozen, graph.layer = #graph.layer<0>, graph.quantized = {bits = 4 : i64, floats, group = 64 : i64, part = "values", shape = array<i64: 32, 128>, source = "w"}, {{[^}]*}} graph.state = "w.values"}
// CHECK-SAME:  %[[S:[^:]*]]: tensor<2x3x16xi32> {graph.frozen, {{.*}} part = "scales"
// CHECK:       %[[W:.*]] = graph.dequantize %[[Q]], %[[S]] bits 4 group 64 floats : tensor<2x16x16xi32>, tensor<2x3x16xi32> -> tensor<32x128xf32>
// CHECK:       call @layer(%{{.*}}, %[[W]])
func.func private @layer(%x: tensor<2x128xf32>, %w: tensor<32x128xf32>) -> tensor<2x32xf32> attributes {graph.block} {
  %y = graph.einsum "bk,nk->bn" %x, %w : (tensor<2x128xf32>, tensor<32x128xf32>) -> tensor<2x32xf32>
  return %y : tensor<2x32xf32>
}
func.func @logits(
    %w: tensor<32x128xf32> {graph.frozen, graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "w"},
    %a: tensor<4x128xf32> {graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "a"},
    %h: tensor<40x128xf32> {graph.frozen, graph.role = #graph<role parameter>, graph.state = "head"},
    %x: tensor<2x128xf32> {graph.input = "x"}) -> (tensor<2x32xf32> {graph.output = "y"}, tensor<2x40xf32> {graph.output = "z"}, tensor<2x4xf32> {graph.output = "b"}) attributes {graph.program = #graph.program<logits>} {
  %y = call @layer(%x, %w) : (tensor<2x128xf32>, tensor<32x128xf32>) -> tensor<2x32xf32>
  %z = graph.einsum "bk,nk->bn" %x, %h : (tensor<2x128xf32>, tensor<40x128xf32>) -> tensor<2x40xf32>
  %b = graph.einsum "bk,nk->bn" %x, %a : (tensor<2x128xf32>, tensor<4x128xf32>) -> tensor<2x4xf32>
  return %y, %z, %b : tensor<2x32xf32>, tensor<2x40xf32>, tensor<2x4xf32>
}

// -----

// expected-error @+1 {{'w' has 32 rows of 96 weights; a quantized base requires a multiple of 16 rows, each of whole blocks of 64}}
func.func @logits(%w: tensor<32x96xf32> {graph.frozen, graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "w"},
    %x: tensor<2x96xf32> {graph.input = "x"}) -> (tensor<2x32xf32> {graph.output = "y"}) attributes {graph.program = #graph.program<logits>} {
  %y = graph.einsum "bk,nk->bn" %x, %w : (tensor<2x96xf32>, tensor<32x96xf32>) -> tensor<2x32xf32>
  return %y : tensor<2x32xf32>
}

// -----

// expected-error @+1 {{'w' is read by other ops than matmuls}}
func.func @logits(%w: tensor<32x64xf32> {graph.frozen, graph.layer = #graph.layer<0>, graph.role = #graph<role parameter>, graph.state = "w"},
    %x: tensor<2x64xf32> {graph.input = "x"}) -> (tensor<2x32xf32> {graph.output = "y"}, tensor<32x64xf32> {graph.output = "z"}) attributes {graph.program = #graph.program<logits>} {
  %y = graph.einsum "bk,nk->bn" %x, %w : (tensor<2x64xf32>, tensor<32x64xf32>) -> tensor<2x32xf32>
  %z = graph.add %w, %w : tensor<32x64xf32>
  return %y, %z : tensor<2x32xf32>, tensor<32x64xf32>
}
