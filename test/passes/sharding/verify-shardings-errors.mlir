// RUN: tessera-opt %s --verify-shardings --split-input-file --verify-diagnostics
// Each way in which shardings can be wrong, one module each.

dist.mesh @mesh [#dist.axis<"a" = 2>]
dist.mesh @other [#dist.axis<"a" = 2>]
// expected-error @+1 {{has a sharding on mesh @other, others are on @mesh}}
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@other, [{"a"}]>}) {
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 4>]
// expected-error @+1 {{has a sharding along a sub-axis; make that sub-axis an axis of the mesh}}
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a":(1)2}]>}) {
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
// expected-error @+1 {{has no body}}
func.func private @g(tensor<4xf32>) -> tensor<4xf32>

// -----

//===--- what goes in and out of programs ---------------------------------===//

dist.mesh @mesh [#dist.axis<"a" = 2>]
// expected-error @+1 {{argument 0 is [{}] partial sum {"a"}, but arguments and results of programs cannot be partial}}
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{}], partial sum {"a"}>}) {
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
// expected-error @+1 {{result 0 is [] partial sum {"a"}, but arguments and results of programs cannot be partial}}
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) -> (tensor<f32> {dist.sharding = #dist.sharding<@mesh, [], partial sum {"a"}>}) {
  %s = graph.reduce %x sum dims [0] {dist.shardings = [#dist.sharding<@mesh, [], partial sum {"a"}>]} : tensor<4xf32> -> tensor<f32>
  return %s : tensor<f32>
}

// -----

// Saved by one program where the other does not look for it.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @eval_step(%w: tensor<4x6xf32> {graph.state = "w", graph.role = #graph<role parameter>, dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  return
}
// expected-error @+1 {{argument 0 'w' is [{}, {"a"}], but that of @eval_step is [{"a"}, {}]}}
func.func @train_step(%w: tensor<4x6xf32> {graph.state = "w", graph.role = #graph<role parameter>, dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  return
}

// -----

//===--- calls, loops and returns -----------------------------------------===//

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{calls @g, which has no body}}
  %y = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @g(tensor<4xf32>) -> tensor<4xf32>

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func private @g(%x: tensor<4x2xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  %y = graph.transpose %x [1, 0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"a"}]>]} : tensor<4x2xf32> -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
func.func @f(%x: tensor<4x2xf32>) {
  // expected-error @+1 {{operand 0 is [{}, {}], but @g's argument is [{"a"}, {}]}}
  %y = func.call @g(%x) : (tensor<4x2xf32>) -> tensor<2x4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func private @g(%x: tensor<4x2xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  %y = graph.transpose %x [1, 0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"a"}]>]} : tensor<4x2xf32> -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
func.func @f(%x: tensor<4x2xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  // expected-error @+1 {{result 0 is [{}, {}], but @g's result is [{}, {"a"}]}}
  %y = func.call @g(%x) : (tensor<4x2xf32>) -> tensor<2x4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{init 0 is [{}], but the loop-carried value is [{"a"}]}}
  %y = graph.loop 2 (%i, %c = %x) : (tensor<4xf32>) attributes {dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} {
    graph.yield %c : tensor<4xf32>
  }
  return
}

// -----

// What is added up is cut, what it is added to is not.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>, %d: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) {
  %y = graph.loop 2 (%i, %c = %x) : (tensor<4xf32>) {
    // expected-error @+1 {{operand 0 is [{"a"}], but the loop-carried value is [{}]}}
    graph.yield %d : tensor<4xf32>
  }
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) -> tensor<4xf32> {
  // expected-error @+1 {{operand 0 is [{"a"}], but @f's result is [{}]}}
  return %x : tensor<4xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{is only allowed in local programs; this one has shardings}}
  %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"a">] : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>, #dist.axis<"b" = 2>]
func.func @f(%x: tensor<4x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {"b"}]>}) {
  %s = graph.reduce %x sum dims [0, 1] {dist.shardings = [#dist.sharding<@mesh, [], partial sum {"a", "b"}>]} : tensor<4x4xf32> -> tensor<f32>
  // expected-error @+1 {{the input is [] partial sum {"a", "b"}, but its result is [] partial max {"a"}}}
  %t = dist.reshard %s to <@mesh, [], partial max {"a"}> : tensor<f32>
  return
}

// -----

//===--- loops of ops -----------------------------------------------------===//

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}) {
  // expected-error @+1 {{operand 0 dimension 1 is sharded as {"a"}, but the op requires all of it}}
  %y = graph.softmax %x : tensor<6x4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"a"}]>}, %w: tensor<4x8xf32>) {
  // expected-error @+1 {{operand 1 dimension 0 is sharded as {}, but operand 0 dimension 1, the same loop, as {"a"}}}
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  return
}

// -----

// The result of rows that are cut is cut.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  // expected-error @+1 {{result 0 dimension 0 is sharded as {}, but operand 0 dimension 0, the same loop, as {"a"}}}
  %y = graph.softmax %x : tensor<6x4xf32>
  return
}

// -----

// Three projections side by side: a half of all columns is no half of each.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<12xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) {
  // expected-error @+1 {{operand 0 dimension 0 is sharded as {"a"}, which does not shard its factor of 4}}
  %y = graph.slice %x [4] {dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} : tensor<12xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<12xf32> {dist.sharding = #dist.sharding<@mesh, [{3, 4:"a"}]>}) {
  // expected-error @+1 {{result 0 dimension 0 is sharded as {}, but operand 0 dimension 0 factor 1, the same loop, as {"a"}}}
  %y = graph.slice %x [4] : tensor<12xf32> -> tensor<4xf32>
  return
}

// -----

//===--- parts of sums ----------------------------------------------------===//

// Nobody summed the parts of the product.
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @mlp(%h: tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %down: tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  %y = graph.einsum "bk,kn->bn" %h, %down {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"tensor"}>]} : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  // expected-error @+1 {{operand 0 is [{}, {}] partial sum {"tensor"}; the op is not linear in such partial values}}
  %z = graph.gelu %y tanh {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"tensor"}>]} : tensor<6x4xf32>
  return
}

// -----

// A division of integers truncates: 8 / 2 is not 5 / 2 + 3 / 2.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xi64> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}, %two: tensor<i64>) {
  %s = graph.reduce %x sum dims [0] {dist.shardings = [#dist.sharding<@mesh, [], partial sum {"a"}>]} : tensor<4xi64> -> tensor<i64>
  // expected-error @+1 {{operand 0 is [] partial sum {"a"}, operand 1 is []; the op is not linear in such partial values}}
  %q = graph.div %s, %two {dist.shardings = [#dist.sharding<@mesh, [], partial sum {"a"}>]} : tensor<i64>
  return
}

// -----

// Nobody says that they are parts.
dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @mlp(%h: tensor<6x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %down: tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  // expected-error @+1 {{result 0 is [{}, {}], but the op produces partial values along {"tensor"}}}
  %y = graph.einsum "bk,kn->bn" %h, %down : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{result 0 is [{}] partial sum {"a"}, but the op produces no partial value}}
  %y = graph.neg %x {dist.shardings = [#dist.sharding<@mesh, [{}], partial sum {"a"}>]} : tensor<4xf32>
  return
}

// -----

// x + Σ parts would be Σ (x + part), x as often as there are devices.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>, %s: tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %p = graph.reduce %s sum dims [0] {dist.shardings = [#dist.sharding<@mesh, [{}], partial sum {"a"}>]} : tensor<2x4xf32> -> tensor<4xf32>
  // expected-error @+1 {{operand 0 is [{}], operand 1 is [{}] partial sum {"a"}; the op is not linear in such partial values}}
  %y = graph.add %x, %p {dist.shardings = [#dist.sharding<@mesh, [{}], partial sum {"a"}>]} : tensor<4xf32>
  return
}

// -----

// (Σ parts)² is not Σ part².
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%s: tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %p = graph.reduce %s sum dims [0] {dist.shardings = [#dist.sharding<@mesh, [{}], partial sum {"a"}>]} : tensor<2x4xf32> -> tensor<4xf32>
  // expected-error @+1 {{operand 0 is [{}] partial sum {"a"}, operand 1 is [{}] partial sum {"a"}; the op is not linear in such partial values}}
  %y = graph.mul %p, %p {dist.shardings = [#dist.sharding<@mesh, [{}], partial sum {"a"}>]} : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func private @f(%m: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{}], partial max {"a"}>}) {
  // expected-error @+1 {{operand 0 is [{}] partial max {"a"}, but an operand can only be partial with kind sum}}
  %y = graph.neg %m {dist.shardings = [#dist.sharding<@mesh, [{}], partial max {"a"}>]} : tensor<4xf32>
  %z = graph.softmax %y : tensor<4xf32>
  return
}

// -----

// Part a of one factor times part a of the other is a part of no product.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%s: tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}, %w: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %p = graph.reduce %s sum dims [0] {dist.shardings = [#dist.sharding<@mesh, [{}], partial sum {"a"}>]} : tensor<2x4xf32> -> tensor<4xf32>
  // expected-error @+1 {{operand 0 is partial along {"a"}, but operand 1 dimension 0 is sharded along it}}
  %y = graph.einsum "k,nk->n" %p, %w {dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} : (tensor<4xf32>, tensor<6x4xf32>) -> tensor<6xf32>
  return
}

// -----

// Every device would add the whole base.
dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @f(%base: tensor<8x4xf32>, %ids: tensor<6xi32> {dist.sharding = #dist.sharding<@mesh, [{"data"}]>}, %rows: tensor<6x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>}) {
  // expected-error @+1 {{operand 0 is [{}, {}], but every device along {"data"} adds a partial value to it}}
  %y = graph.scatter_add %rows at %ids onto %base {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"data"}>]} : tensor<6x4xf32>, tensor<6xi32>, tensor<8x4xf32>
  return
}

// -----

//===--- rows in an order of each device's own ----------------------------===//

dist.mesh @mesh [#dist.axis<"a" = 2>]
// expected-error @+1 {{argument 0 is [{}] own {"a"}, but arguments and results of programs have one row order for all devices}}
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{}], own {"a"}>}) {
  return
}

// -----

// A cut of entries that are numbered through all devices.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%ids: tensor<4x1xi32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  // expected-error @+1 {{operand 0 dimension 0 is sharded along {"a"}, along which all devices have one row order}}
  %offsets, %slots = graph.group_rows %ids {dist.shardings = [#dist.sharding<@mesh, [{}]>, #dist.sharding<@mesh, [{"a"}, {}]>]} : (tensor<4x1xi32>) -> (tensor<3xi32>, tensor<4x1xi32>)
  return
}

// -----

// There is no order in which rows of several devices could stand together.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%ids: tensor<4x1xi32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}, %x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %offsets, %slots = graph.group_rows %ids {dist.shardings = [#dist.sharding<@mesh, [{}], own {"a"}>, #dist.sharding<@mesh, [{"a"}, {}], own {"a"}>]} : (tensor<4x1xi32>) -> (tensor<3xi32>, tensor<4x1xi32>)
  %rows = graph.dispatch_rows %x slots %slots {dist.shardings = [#dist.sharding<@mesh, [{"a"}, {}], own {"a"}>]} : (tensor<4x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>
  // expected-error @+1 {{the input is [{"a"}, {}] own {"a"}, but its result is [{}, {}]}}
  %all = dist.reshard %rows to <@mesh, [{}, {}]> : tensor<4x3xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%ids: tensor<4x1xi32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}, %x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %offsets, %slots = graph.group_rows %ids {dist.shardings = [#dist.sharding<@mesh, [{}], own {"a"}>, #dist.sharding<@mesh, [{"a"}, {}], own {"a"}>]} : (tensor<4x1xi32>) -> (tensor<3xi32>, tensor<4x1xi32>)
  // expected-error @+1 {{result 0 is [{"a"}, {}], but the op produces device-local row order along {"a"}}}
  %rows = graph.dispatch_rows %x slots %slots {dist.shardings = [#dist.sharding<@mesh, [{"a"}, {}]>]} : (tensor<4x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%ids: tensor<4x1xi32> {dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) {
  %offsets, %slots = graph.group_rows %ids {dist.shardings = [#dist.sharding<@mesh, [{}], own {"a"}>, #dist.sharding<@mesh, [{"a"}, {}], own {"a"}>]} : (tensor<4x1xi32>) -> (tensor<3xi32>, tensor<4x1xi32>)
  // expected-error @+1 {{operand 0 is [{"a"}, {}] own {"a"}, but the op requires rows in one order for all devices}}
  %turned = graph.transpose %slots [1, 0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"a"}]>]} : tensor<4x1xi32> -> tensor<1x4xi32>
  return
}

// -----

// All rows with half of the matrices.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%ids: tensor<4x1xi32>, %x: tensor<4x3xf32>, %w: tensor<2x3x3xf32>) {
  %offsets, %slots = graph.group_rows %ids {dist.shardings = [#dist.sharding<@mesh, [{}], own {"a"}>, #dist.sharding<@mesh, [{}, {}], own {"a"}>]} : (tensor<4x1xi32>) -> (tensor<3xi32>, tensor<4x1xi32>)
  %rows = graph.dispatch_rows %x slots %slots {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"a"}>]} : (tensor<4x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>
  // expected-error @+1 {{has device-local row order along {"a"}, which shards neither rows nor groups}}
  %y = graph.grouped_matmul %rows, %w groups %offsets {dist.shardings = [#dist.sharding<@mesh, [{}, {}], own {"a"}>]} : (tensor<4x3xf32>, tensor<2x3x3xf32>, tensor<3xi32>) -> tensor<4x3xf32>
  return
}

// -----

//===--- what goes in parts -----------------------------------------------===//

dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @f(%x: tensor<5x3xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %w: tensor<3x3xf32>) {
  // expected-error @+1 {{cannot be decomposed (dist.collective_matmul): shards of 5 are uneven}}
  %all = dist.reshard %x to <@mesh, [{}, {}]> {dist.collective_matmul} : tensor<5x3xf32>
  %y = graph.einsum "tk,kn->tn" %all, %w : (tensor<5x3xf32>, tensor<3x3xf32>) -> tensor<5x3xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @f(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>}, %w: tensor<3x3xf32>) {
  // expected-error @+1 {{cannot be decomposed (dist.collective_matmul): only gathers and scatters over 'tensor' can be}}
  %all = dist.reshard %x to <@mesh, [{}, {}]> {dist.collective_matmul} : tensor<4x3xf32>
  %y = graph.einsum "tk,kn->tn" %all, %w : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @f(%x: tensor<4x3xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  // expected-error @+1 {{cannot be decomposed (dist.collective_matmul): not all users of the gathered tensor are matmuls}}
  %all = dist.reshard %x to <@mesh, [{}, {}]> {dist.collective_matmul} : tensor<4x3xf32>
  %y = graph.neg %all : tensor<4x3xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"tensor" = 2>]
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tensor"}]>}, %w: tensor<8x3xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}) {
  %sum = graph.einsum "tn,nk->tk" %x, %w {dist.shardings = [#dist.sharding<@mesh, [{}, {}], partial sum {"tensor"}>]} : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %all = dist.reshard %sum to <@mesh, [{}, {}]> : tensor<4x3xf32>
  // expected-error @+1 {{cannot be decomposed (dist.collective_matmul): its input is not a matmul that only it reads}}
  %own = dist.reshard %sum to <@mesh, [{"tensor"}, {}]> {dist.collective_matmul} : tensor<4x3xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"tensor" = 4>]
func.func @f(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}, {}]>}, %dy: tensor<8x16xf32>) {
  // expected-error @+1 {{cannot be decomposed (dist.collective_matmul): devices would add the chunks of one sum in different orders}}
  %all = dist.reshard %x to <@mesh, [{}, {}]> {dist.collective_matmul} : tensor<8x6xf32>
  %dw = graph.einsum "tk,tn->kn" %all, %dy : (tensor<8x6xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"tensor" = 2>, #dist.axis<"context" = 2>]
func.func @f(%x: tensor<8x6xf32> {dist.sharding = #dist.sharding<@mesh, [{4:"tensor", 2:"context"}, {}]>}, %w: tensor<6x16xf32>) {
  // expected-error @+1 {{cannot be decomposed (dist.collective_matmul): its dimension is sharded in stripes}}
  %all = dist.reshard %x to <@mesh, [{4, 2:"context"}, {}]> {dist.collective_matmul} : tensor<8x6xf32>
  %y = graph.einsum "tk,kn->tn" %all, %w {dist.shardings = [#dist.sharding<@mesh, [{4, 2:"context"}, {}]>]} : (tensor<8x6xf32>, tensor<6x16xf32>) -> tensor<8x16xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"tensor" = 2>]
// expected-error @+1 {{'dist.collective_matmul' is only allowed on a dist.reshard}}
func.func @f() attributes {dist.collective_matmul} {
  return
}
