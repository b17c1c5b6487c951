// RUN: tessera-opt %s --quantize-weights="bits=0" | FileCheck %s
// RUN: tessera-opt %s --quantize-weights="bits=8 group=32" | FileCheck %s --check-prefix=INT8

// Stacks [matrices, columns, rows] are replaced only where a checkpoint stores them so, in mxfp4.

// CHECK-LABEL: func @decode_1
// CHECK-SAME:  %[[Q:[a-z0-9]+]]: tensor<12x8x16xi32> {graph.quantized = {bits = 4 : i64, floats, group = 32 : i64, part = "values", shape = array<i64: 4, 48, 64>, source = "u", transposed}
// CHECK-SAME:  %[[S:[a-z0-9]+]]: tensor<12x1x16xi32> {graph.quantized = {bits = 4 : i64, floats, group = 32 : i64, part = "scales", shape = array<i64: 4, 48, 64>, source = "u", transposed}
// CHECK-SAME:  tensor<4x64x48xf32> {graph.role = #graph<role parameter>, graph.state = "v"}
// CHECK:       %[[U:.+]] = graph.dequantize %[[Q]], %[[S]] bits 4 group 32 floats transposed : tensor<12x8x16xi32>, tensor<12x1x16xi32> -> tensor<4x64x48xf32>
// CHECK:       graph.grouped_matmul %{{.*}}, %[[U]] groups
// INT8-LABEL:  func @decode_1
// INT8-SAME:   tensor<4x64x48xf32> {graph.role = #graph<role parameter>, graph.state = "v"}
func.func @decode_1(
    %u: tensor<4x64x48xf32> {graph.role = #graph<role parameter>, graph.state = "u", graph.stored = {bits = 4 : i64, floats, group = 32 : i64}},
    %v: tensor<4x64x48xf32> {graph.role = #graph<role parameter>, graph.state = "v"},
    %x: tensor<6x64xf32> {graph.input = "x"},
    %g: tensor<5xi32> {graph.input = "g"}) -> (tensor<6x48xf32> {graph.output = "y"}) attributes {graph.program = #graph.program<decode>} {
  %y = graph.grouped_matmul %x, %u groups %g : (tensor<6x64xf32>, tensor<4x64x48xf32>, tensor<5xi32>) -> tensor<6x48xf32>
  %z = graph.grouped_matmul %x, %v groups %g : (tensor<6x64xf32>, tensor<4x64x48xf32>, tensor<5xi32>) -> tensor<6x48xf32>
  %s = graph.add %y, %z : tensor<6x48xf32>
  return %s : tensor<6x48xf32>
}
