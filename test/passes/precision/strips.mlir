// RUN: tessera-opt %s --quantize-weights="bits=16" | FileCheck %s

// Matrices of bf16 go into strips: nothing else of them is left, but for a table that is picked from. f32 and stacks stay.

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
    %ids: tensor<1xi32> {graph.input = "tokens"}) -> (tensor<1x40xbf16> {graph.output = "logits"}, tensor<1x130xbf16> {graph.output = "up"}) {
  %x = graph.embedding %t, %ids : (tensor<40x96xbf16>, tensor<1xi32>) -> tensor<1x96xbf16>
  %y = graph.einsum "bk,kn->bn" %x, %u : (tensor<1x96xbf16>, tensor<96x130xbf16>) -> tensor<1x130xbf16>
  %l = graph.einsum "bk,nk->bn" %x, %t : (tensor<1x96xbf16>, tensor<40x96xbf16>) -> tensor<1x40xbf16>
  return %l, %y : tensor<1x40xbf16>, tensor<1x130xbf16>
}
