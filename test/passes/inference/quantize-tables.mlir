// RUN: tessera-opt %s --quantize-weights="bits=0 tables" | FileCheck %s
// RUN: tessera-opt %s --quantize-weights="bits=16 tables" | FileCheck %s --check-prefix=PACKED
// RUN: tessera-opt %s --quantize-weights="bits=0" | FileCheck %s --check-prefix=KEPT

// A table that is the head, too, is held once, also where a program only gathers its rows. A table without a product has a layout if it is
// stored in one. One that a product sums over first stays for its rows.

// CHECK-LABEL: func @decode_1(
// CHECK-NOT:   graph.state = "head"
// CHECK:       %[[HQ:[^:]*]]: tensor<3x48x16xi32> {graph.quantized = {{{[^}]*}} source = "head", super_blocks}, {{[^}]*}} graph.state = "head.values"}
// CHECK-SAME:  %[[HS:[^:]*]]: tensor<3x5x16xi32> {{{.*}} graph.state = "head.scales"}
// CHECK-NOT:   graph.state = "table"
// CHECK-SAME:  %[[TQ:[^:]*]]: tensor<3x64x16xi32> {graph.quantized = {bits = 8 : i64, {{[^}]*}} source = "table"}, {{[^}]*}} graph.state = "table.values"}
// CHECK-SAME:  tensor<48x256xbf16> {{{[^}]*}} graph.state = "plain"}
// CHECK-SAME:  tensor<256x48xbf16> {{{[^}]*}} graph.state = "transposed"}
// CHECK-DAG:   %[[H:.*]] = graph.dequantize %[[HQ]], %[[HS]] bits 6 group 256 super_blocks
// CHECK-DAG:   %[[T:.*]] = graph.dequantize %[[TQ]], %{{.*}} bits 8 group 32
// CHECK-DAG:   graph.embedding %[[H]], %{{.*}} -> tensor<2x256xbf16>
// CHECK-DAG:   graph.embedding %[[T]], %{{.*}} -> tensor<2x256xbf16>
// CHECK:       graph.einsum "bk,vk->bv" %{{.*}}, %[[H]]
// PACKED-LABEL: func @decode_1(
// PACKED:       %[[P:[^:]*]]: tensor<48x256xbf16> {{{[^}]*}} graph.state = "plain"}
// PACKED-SAME:  %[[U:[^:]*]]: tensor<256x48xbf16> {{{[^}]*}} graph.state = "transposed"}
// PACKED-SAME:  {{{.*}} graph.state = "transposed.values"}
// PACKED-DAG:   graph.embedding %[[P]],
// PACKED-DAG:   graph.embedding %[[U]],
// KEPT-LABEL: func @decode_1(
// KEPT-SAME:  %[[H:[^:]*]]: tensor<48x256xbf16> {{{[^}]*}} graph.state = "head"}
// KEPT-SAME:  %[[T:[^:]*]]: tensor<48x256xbf16> {{{[^}]*}} graph.state = "table"}
// KEPT-DAG:   graph.embedding %[[H]],
// KEPT-DAG:   graph.embedding %[[T]],
func.func @decode_1(
    %h: tensor<48x256xbf16> {graph.role = #graph<role parameter>, graph.state = "head", graph.stored = {bits = 6 : i64, group = 256 : i64, super_blocks}},
    %t: tensor<48x256xbf16> {graph.role = #graph<role parameter>, graph.state = "table", graph.stored = {bits = 8 : i64, group = 32 : i64}},
    %p: tensor<48x256xbf16> {graph.role = #graph<role parameter>, graph.state = "plain"},
    %u: tensor<256x48xbf16> {graph.role = #graph<role parameter>, graph.state = "transposed"},
    %i: tensor<2xi32> {graph.input = "tokens"}) -> (tensor<2x48xbf16> {graph.output = "logits"}, tensor<2x48xbf16> {graph.output = "y"})
    attributes {graph.program = #graph.program<decode>} {
  %a = graph.embedding %h, %i : (tensor<48x256xbf16>, tensor<2xi32>) -> tensor<2x256xbf16>
  %b = graph.embedding %t, %i : (tensor<48x256xbf16>, tensor<2xi32>) -> tensor<2x256xbf16>
  %c = graph.embedding %p, %i : (tensor<48x256xbf16>, tensor<2xi32>) -> tensor<2x256xbf16>
  %d = graph.embedding %u, %i : (tensor<256x48xbf16>, tensor<2xi32>) -> tensor<2x48xbf16>
  %ab = graph.add %a, %b : tensor<2x256xbf16>
  %abc = graph.add %ab, %c : tensor<2x256xbf16>
  %l = graph.einsum "bk,vk->bv" %abc, %h : (tensor<2x256xbf16>, tensor<48x256xbf16>) -> tensor<2x48xbf16>
  %y = graph.einsum "bk,kn->bn" %abc, %u : (tensor<2x256xbf16>, tensor<256x48xbf16>) -> tensor<2x48xbf16>
  %z = graph.add %y, %d : tensor<2x48xbf16>
  return %l, %z : tensor<2x48xbf16>, tensor<2x48xbf16>
}

// CHECK-LABEL: func @embed_2(
// CHECK-NOT:   graph.state = "head"
// CHECK-SAME:  graph.state = "head.values"}
// CHECK:       graph.embedding %{{.*}} -> tensor<2x256xbf16>
func.func @embed_2(
    %h: tensor<48x256xbf16> {graph.role = #graph<role parameter>, graph.state = "head", graph.stored = {bits = 6 : i64, group = 256 : i64, super_blocks}},
    %i: tensor<2xi32> {graph.input = "tokens"}) -> (tensor<2x256xbf16> {graph.output = "x"}) attributes {graph.program = #graph.program<embed>} {
  %x = graph.embedding %h, %i : (tensor<48x256xbf16>, tensor<2xi32>) -> tensor<2x256xbf16>
  return %x : tensor<2x256xbf16>
}
