// RUN: tessera-opt %s --quantize-weights="bits=4 group=64" --split-input-file --verify-diagnostics | FileCheck %s
// RUN: tessera-opt %s --quantize-weights="bits=4 group=64 zeros" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=ZEROS
// RUN: tessera-opt %s --quantize-weights="bits=0" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=STORED
// RUN: tessera-opt %s --quantize-weights="bits=8 group=64 floats" --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=FLOATS

// A block's matrix has the bits that were asked for, transposed where it is summed over first; the head, which is also the
// table, is quantized with 8 bits beside the table; small matrices, wide ones and vectors stay.

// CHECK-LABEL: func @init
// CHECK-SAME:  -> (tensor<40x96xf32> {{{.*}} graph.state = "table"}, tensor<8x96xf32> {{{.*}} graph.state = "small"}, tensor<40x96xf32> {graph.keep_f32, {{.*}} graph.state = "wide"}, tensor<96xf32> {{{.*}} graph.state = "norm"})
func.func @init(%seed: tensor<1xi64> {graph.input = "seed"}) -> (
    tensor<40x96xf32> {graph.role = #graph<role parameter>, graph.state = "table"}, tensor<96x130xf32> {graph.role = #graph<role parameter>, graph.state = "up"},
    tensor<96x130xf32> {graph.role = #graph<role parameter>, graph.state = "down"}, tensor<8x96xf32> {graph.role = #graph<role parameter>, graph.state = "small"},
    tensor<40x96xf32> {graph.role = #graph<role parameter>, graph.state = "wide", graph.keep_f32}, tensor<96xf32> {graph.role = #graph<role parameter>, graph.state = "norm"}) attributes {graph.program = #graph.program<init>} {
  %t = graph.constant dense<1.0> : tensor<40x96xf32>
  %u = graph.constant dense<1.0> : tensor<96x130xf32>
  %s = graph.constant dense<1.0> : tensor<8x96xf32>
  %n = graph.constant dense<1.0> : tensor<96xf32>
  return %t, %u, %u, %s, %t, %n : tensor<40x96xf32>, tensor<96x130xf32>, tensor<96x130xf32>, tensor<8x96xf32>, tensor<40x96xf32>, tensor<96xf32>
}

// CHECK-LABEL: func private @layer(
// CHECK-SAME:  %{{.*}}: tensor<1x96xf32>, %{{.*}}: tensor<96x130xf32>, %{{.*}}: tensor<96x130xf32>)
func.func private @layer(%x: tensor<1x96xf32>, %u: tensor<96x130xf32>, %d: tensor<96x130xf32>) -> tensor<1x96xf32> attributes {graph.block} {
  %y = graph.einsum "bk,kn->bn" %x, %u : (tensor<1x96xf32>, tensor<96x130xf32>) -> tensor<1x130xf32>
  %z = graph.einsum "bk,nk->bn" %y, %d : (tensor<1x130xf32>, tensor<96x130xf32>) -> tensor<1x96xf32>
  return %z : tensor<1x96xf32>
}

// CHECK-LABEL: func @decode_1
// CHECK-SAME:  %[[T:[^:]*]]: tensor<40x96xf32> {{{[^}]*}} graph.state = "table"}
// CHECK-SAME:  %[[TQ:[^:]*]]: tensor<3x24x16xi32> {graph.quantized = {bits = 8 : i64, group = 64 : i64, part = "values", shape = array<i64: 40, 96>, source = "table"}, {{[^}]*}} graph.state = "table.values"}
// CHECK-SAME:  %[[TS:[^:]*]]: tensor<3x2x16xf16> {graph.quantized = {{{[^}]*}} part = "scales", {{[^}]*}}}, {{[^}]*}} graph.state = "table.scales"}
// CHECK-SAME:  %[[UQ:[^:]*]]: tensor<9x12x16xi32> {graph.quantized = {bits = 4 : i64, group = 64 : i64, part = "values", shape = array<i64: 130, 96>, source = "up", transposed}
// CHECK-SAME:  %[[DQ:[^:]*]]: tensor<6x20x16xi32> {graph.quantized = {bits = 4 : i64, group = 64 : i64, part = "values", shape = array<i64: 96, 130>, source = "down"}
// CHECK-SAME:  tensor<8x96xf32> {{{[^}]*}} graph.state = "small"}
// CHECK-DAG:   %[[HEAD:.*]] = graph.dequantize %[[TQ]], %[[TS]] bits 8 group 64 : tensor<3x24x16xi32>, tensor<3x2x16xf16> -> tensor<40x96xf32>
// CHECK-DAG:   %[[UP:.*]] = graph.dequantize %[[UQ]], %{{.*}} bits 4 group 64 transposed : tensor<9x12x16xi32>, tensor<9x2x16xf16> -> tensor<96x130xf32>
// CHECK-DAG:   %[[DOWN:.*]] = graph.dequantize %[[DQ]], %{{.*}} bits 4 group 64 : tensor<6x20x16xi32>, tensor<6x3x16xf16> -> tensor<96x130xf32>
// ZEROS-DAG:   graph.dequantize %{{.*}} bits 8 group 64 : tensor<3x24x16xi32>, tensor<3x2x16xf16> -> tensor<40x96xf32>
// ZEROS-DAG:   graph.dequantize %{{.*}} bits 4 group 64 zeros transposed : tensor<9x12x16xi32>, tensor<9x4x16xf16> -> tensor<96x130xf32>
// ZEROS-DAG:   graph.dequantize %{{.*}} bits 4 group 64 zeros : tensor<6x20x16xi32>, tensor<6x6x16xf16> -> tensor<96x130xf32>
// FLOATS-LABEL: func @decode_1
// FLOATS-SAME: tensor<3x24x16xi32> {graph.quantized = {bits = 8 : i64, floats, group = 64 : i64, part = "values", shape = array<i64: 40, 96>, source = "table"}
// FLOATS-DAG:  graph.dequantize %{{.*}} bits 8 group 64 floats : tensor<3x24x16xi32>, tensor<3x2x16xf16> -> tensor<40x96xf32>
// FLOATS-DAG:  graph.dequantize %{{.*}} bits 8 group 64 floats transposed : tensor<9x24x16xi32>, tensor<9x2x16xf16> -> tensor<96x130xf32>
// FLOATS-DAG:  graph.dequantize %{{.*}} bits 8 group 64 floats : tensor<6x40x16xi32>, tensor<6x3x16xf16> -> tensor<96x130xf32>
// CHECK:       %[[X:.*]] = graph.embedding %[[T]],
// CHECK:       call @layer(%{{.*}}, %[[UP]], %[[DOWN]])
// CHECK:       graph.einsum "bk,vk->bv" %{{.*}}, %[[HEAD]]
func.func @decode_1(
    %t: tensor<40x96xf32> {graph.role = #graph<role parameter>, graph.state = "table"}, %u: tensor<96x130xf32> {graph.role = #graph<role parameter>, graph.state = "up"},
    %d: tensor<96x130xf32> {graph.role = #graph<role parameter>, graph.state = "down"}, %s: tensor<8x96xf32> {graph.role = #graph<role parameter>, graph.state = "small"},
    %w: tensor<40x96xf32> {graph.role = #graph<role parameter>, graph.state = "wide", graph.keep_f32}, %n: tensor<96xf32> {graph.role = #graph<role parameter>, graph.state = "norm"},
    %i: tensor<1xi32> {graph.input = "tokens"}) -> (tensor<1x40xf32> {graph.output = "logits"}, tensor<1x8xf32> {graph.output = "a"}, tensor<1x40xf32> {graph.output = "b"}) attributes {graph.program = #graph.program<decode>} {
  %x = graph.embedding %t, %i : (tensor<40x96xf32>, tensor<1xi32>) -> tensor<1x96xf32>
  %y = call @layer(%x, %u, %d) : (tensor<1x96xf32>, tensor<96x130xf32>, tensor<96x130xf32>) -> tensor<1x96xf32>
  %l = graph.einsum "bk,vk->bv" %y, %t : (tensor<1x96xf32>, tensor<40x96xf32>) -> tensor<1x40xf32>
  %a = graph.einsum "bk,nk->bn" %y, %s : (tensor<1x96xf32>, tensor<8x96xf32>) -> tensor<1x8xf32>
  %b = graph.einsum "bk,nk->bn" %y, %w : (tensor<1x96xf32>, tensor<40x96xf32>) -> tensor<1x40xf32>
  return %l, %a, %b : tensor<1x40xf32>, tensor<1x8xf32>, tensor<1x40xf32>
}

// -----

// Experts are quantized as one matrix of all their rows; those of parts of strips stay.

// CHECK-LABEL: func private @experts(
// CHECK-SAME:  %{{.*}}: tensor<6x64xf32>, %{{.*}}: tensor<5xi32>, %{{.*}}: tensor<4x48x64xf32>, %{{.*}}: tensor<4x40x64xf32>)
func.func private @experts(%x: tensor<6x64xf32>, %g: tensor<5xi32>, %u: tensor<4x48x64xf32>, %v: tensor<4x40x64xf32>) -> (tensor<6x48xf32>, tensor<6x40xf32>)
    attributes {graph.block} {
  %y = graph.grouped_matmul %x, %u groups %g {transposed} : (tensor<6x64xf32>, tensor<4x48x64xf32>, tensor<5xi32>) -> tensor<6x48xf32>
  %z = graph.grouped_matmul %x, %v groups %g {transposed} : (tensor<6x64xf32>, tensor<4x40x64xf32>, tensor<5xi32>) -> tensor<6x40xf32>
  return %y, %z : tensor<6x48xf32>, tensor<6x40xf32>
}

// CHECK-LABEL: func @decode_1
// CHECK-SAME:  %[[Q:[^:]*]]: tensor<12x8x16xi32> {graph.quantized = {bits = 4 : i64, group = 64 : i64, part = "values", shape = array<i64: 4, 48, 64>, source = "experts.*.up.weight"}, {{[^}]*}} graph.state = "experts.*.up.weight.values"}
// CHECK-SAME:  %[[S:[^:]*]]: tensor<12x1x16xf16> {graph.quantized = {bits = 4 : i64, group = 64 : i64, part = "scales", shape = array<i64: 4, 48, 64>, source = "experts.*.up.weight"}
// CHECK-SAME:  %[[V:[^:]*]]: tensor<4x40x64xf32> {{{[^}]*}} graph.state = "experts.*.v.weight"}
// CHECK:       %[[U:.*]] = graph.dequantize %[[Q]], %[[S]] bits 4 group 64 : tensor<12x8x16xi32>, tensor<12x1x16xf16> -> tensor<4x48x64xf32>
// ZEROS:       graph.dequantize %{{.*}} bits 4 group 64 zeros : tensor<12x8x16xi32>, tensor<12x2x16xf16> -> tensor<4x48x64xf32>
// CHECK:       call @experts(%{{.*}}, %{{.*}}, %[[U]], %[[V]])
func.func @decode_1(
    %u: tensor<4x48x64xf32> {graph.role = #graph<role parameter>, graph.state = "experts.*.up.weight"}, %v: tensor<4x40x64xf32> {graph.role = #graph<role parameter>, graph.state = "experts.*.v.weight"},
    %x: tensor<6x64xf32> {graph.input = "x"}, %g: tensor<5xi32> {graph.input = "g"}) -> (tensor<6x48xf32> {graph.output = "y"}, tensor<6x40xf32> {graph.output = "z"}) attributes {graph.program = #graph.program<decode>} {
  %y:2 = call @experts(%x, %g, %u, %v) : (tensor<6x64xf32>, tensor<5xi32>, tensor<4x48x64xf32>, tensor<4x40x64xf32>) -> (tensor<6x48xf32>, tensor<6x40xf32>)
  return %y#0, %y#1 : tensor<6x48xf32>, tensor<6x40xf32>
}

// -----

// Layouts as a checkpoint stores them: each parameter has its own, of the head too.

// CHECK-LABEL: func @decode_stored
// CHECK-SAME:  tensor<6x12x16xi32> {graph.quantized = {bits = 4 : i64, group = 32 : i64, part = "values", shape = array<i64: 96, 96>, source = "a"}
// CHECK-SAME:  tensor<6x24x16xi32> {graph.quantized = {bits = 8 : i64, group = 32 : i64, part = "values", shape = array<i64: 96, 96>, source = "b"}
// CHECK-SAME:  tensor<6x12x16xi32> {graph.quantized = {bits = 4 : i64, group = 64 : i64, part = "values", shape = array<i64: 96, 96>, source = "c"}
// CHECK-SAME:  tensor<40x96xf32> {graph.role = #graph<role parameter>, graph.state = "head"}
// CHECK-SAME:  tensor<3x12x16xi32> {graph.quantized = {bits = 4 : i64, group = 32 : i64, part = "values", shape = array<i64: 40, 96>, source = "head"}
// STORED-LABEL: func @decode_stored
// STORED-SAME:  source = "a"
// STORED-SAME:  source = "b"
// STORED-SAME:  tensor<96x96xf32> {graph.role = #graph<role parameter>, graph.state = "c"}
// STORED-SAME:  tensor<3x12x16xi32> {graph.quantized = {bits = 4 : i64, group = 32 : i64, part = "values", shape = array<i64: 40, 96>, source = "head"}
func.func private @block(%x: tensor<1x96xf32>, %w: tensor<96x96xf32>) -> tensor<1x96xf32> attributes {graph.block} {
  %y = graph.einsum "bk,nk->bn" %x, %w : (tensor<1x96xf32>, tensor<96x96xf32>) -> tensor<1x96xf32>
  return %y : tensor<1x96xf32>
}
func.func @decode_stored(
    %a: tensor<96x96xf32> {graph.role = #graph<role parameter>, graph.state = "a", graph.stored = {bits = 4 : i64, group = 32 : i64}},
    %b: tensor<96x96xf32> {graph.role = #graph<role parameter>, graph.state = "b", graph.stored = {bits = 8 : i64, group = 32 : i64}},
    %c: tensor<96x96xf32> {graph.role = #graph<role parameter>, graph.state = "c"},
    %t: tensor<40x96xf32> {graph.role = #graph<role parameter>, graph.state = "head", graph.stored = {bits = 4 : i64, group = 32 : i64}},
    %i: tensor<1xi32> {graph.input = "tokens"}) -> (tensor<1x40xf32> {graph.output = "logits"}) attributes {graph.program = #graph.program<decode>} {
  %x = graph.embedding %t, %i : (tensor<40x96xf32>, tensor<1xi32>) -> tensor<1x96xf32>
  %1 = call @block(%x, %a) : (tensor<1x96xf32>, tensor<96x96xf32>) -> tensor<1x96xf32>
  %2 = call @block(%1, %b) : (tensor<1x96xf32>, tensor<96x96xf32>) -> tensor<1x96xf32>
  %3 = call @block(%2, %c) : (tensor<1x96xf32>, tensor<96x96xf32>) -> tensor<1x96xf32>
  %l = graph.einsum "bk,vk->bv" %3, %t : (tensor<1x96xf32>, tensor<40x96xf32>) -> tensor<1x40xf32>
  return %l : tensor<1x40xf32>
}
