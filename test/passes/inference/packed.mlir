// RUN: tessera-opt %s --quantize-weights="bits=16" | FileCheck %s

// Matrices of bf16 go into strips: nothing else of them is left, but for a table that is picked from. f32 stays, and so does a stack that
// experts do not multiply.

// CHECK-LABEL: func @decode_1
// CHECK-SAME:  %[[T:[^:]*]]: tensor<40x96xbf16> {{{[^}]*}} graph.state = "table"}
// CHECK-SAME:  %[[TS:[^:]*]]: tensor<3x96x16xbf16> {graph.quantized = {bits = 16 : i64, group = 32 : i64, part = "values", shape = array<i64: 40, 96>, source = "table"}, {{[^}]*}} graph.state = "table.values"}
// CHECK-SAME:  %[[US:[^:]*]]: tensor<9x96x16xbf16> {graph.quantized = {{{[^}]*}} shape = array<i64: 130, 96>, source = "up", transposed}, {{[^}]*}} graph.state = "up.values"}
// CHECK-SAME:  tensor<96x130xf32>
// CHECK-SAME:  tensor<2x96x130xbf16>
// CHECK-DAG:   %[[U:.*]] = graph.dequantize %[[US]] bits 16 group 32 transposed : tensor<9x96x16xbf16> -> tensor<96x130xbf16>
// CHECK-DAG:   %[[H:.*]] = graph.dequantize %[[TS]] bits 16 group 32 : tensor<3x96x16xbf16> -> tensor<40x96xbf16>
// CHECK:       graph.embedding %[[T]]
func.func @decode_1(
    %t: tensor<40x96xbf16> {graph.role = #graph<role parameter>, graph.state = "table"}, %u: tensor<96x130xbf16> {graph.role = #graph<role parameter>, graph.state = "up"},
    %f: tensor<96x130xf32> {graph.role = #graph<role parameter>, graph.state = "wide"}, %e: tensor<2x96x130xbf16> {graph.role = #graph<role parameter>, graph.state = "experts"},
    %ids: tensor<1xi32> {graph.input = "tokens"}) -> (tensor<1x40xbf16> {graph.output = "logits"}, tensor<1x130xbf16> {graph.output = "up"}) attributes {graph.program = #graph.program<decode>} {
  %x = graph.embedding %t, %ids : (tensor<40x96xbf16>, tensor<1xi32>) -> tensor<1x96xbf16>
  %y = graph.einsum "bk,kn->bn" %x, %u : (tensor<1x96xbf16>, tensor<96x130xbf16>) -> tensor<1x130xbf16>
  %l = graph.einsum "bk,nk->bn" %x, %t : (tensor<1x96xbf16>, tensor<40x96xbf16>) -> tensor<1x40xbf16>
  return %l, %y : tensor<1x40xbf16>, tensor<1x130xbf16>
}

// Stacks that experts multiply are strips of one matrix of all their rows.

// CHECK-LABEL: func @decode_2
// CHECK-SAME:  %[[Q:[^:]*]]: tensor<12x64x16xbf16> {graph.quantized = {bits = 16 : i64, group = 32 : i64, part = "values", shape = array<i64: 4, 48, 64>, source = "experts.*.up.weight"}, {{[^}]*}} graph.state = "experts.*.up.weight.values"}
// CHECK-SAME:  %[[V:[^:]*]]: tensor<4x40x64xbf16> {{{[^}]*}} graph.state = "experts.*.v.weight"}
// CHECK-DAG:   %[[U:.*]] = graph.dequantize %[[Q]] bits 16 group 32 : tensor<12x64x16xbf16> -> tensor<4x48x64xbf16>
// CHECK-DAG:   graph.grouped_matmul %{{.*}}, %[[U]] groups
// CHECK-DAG:   graph.grouped_matmul %{{.*}}, %[[V]] groups
func.func @decode_2(
    %u: tensor<4x48x64xbf16> {graph.role = #graph<role parameter>, graph.state = "experts.*.up.weight"}, %v: tensor<4x40x64xbf16> {graph.role = #graph<role parameter>, graph.state = "experts.*.v.weight"},
    %x: tensor<6x64xbf16> {graph.input = "x"}, %g: tensor<5xi32> {graph.input = "groups"}) -> (tensor<6x48xbf16> {graph.output = "y"}, tensor<6x40xbf16> {graph.output = "z"}) attributes {graph.program = #graph.program<decode>} {
  %y = graph.grouped_matmul %x, %u groups %g {transposed} : (tensor<6x64xbf16>, tensor<4x48x64xbf16>, tensor<5xi32>) -> tensor<6x48xbf16>
  %z = graph.grouped_matmul %x, %v groups %g {transposed} : (tensor<6x64xbf16>, tensor<4x40x64xbf16>, tensor<5xi32>) -> tensor<6x40xbf16>
  return %y, %z : tensor<6x48xbf16>, tensor<6x40xbf16>
}
