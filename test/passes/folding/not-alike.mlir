// RUN: tessera-opt %s --split-input-file --deduplicate-layers=explain --mlir-print-op-on-diagnostic=false 2>&1 | FileCheck %s
// Layers that do not do the same stay as they are.

// One of them is read by something else, too.
// CHECK: remark: layers are not folded: 'graph.neg' at {{.*}} is not in each of the layers
// CHECK-NOT: graph.folded
func.func @logits(
    %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>}, %w3: tensor<4xf32> {graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.state = "h.4.w", graph.layer = #graph.layer<4>}, %x: tensor<4xf32> {graph.input = "x"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = graph.mul %x, %w0 : tensor<4xf32>
  %1 = graph.mul %0, %w1 : tensor<4xf32>
  %2 = graph.mul %1, %w2 : tensor<4xf32>
  %3 = graph.mul %2, %w3 : tensor<4xf32>
  %4 = graph.mul %3, %w4 : tensor<4xf32>
  %5 = graph.sub %1, %x : tensor<4xf32>
  %6 = graph.neg %5 : tensor<4xf32>
  %7 = graph.mul %4, %6 : tensor<4xf32>
  return %7, %4 : tensor<4xf32>, tensor<4xf32>
}

// -----

// One of them does something else.
// CHECK: remark: layers are not folded: 'graph.add' at {{.*}} is not in each of the layers, or not the same
// CHECK-NOT: graph.folded
func.func @logits(
    %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>}, %w3: tensor<4xf32> {graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.state = "h.4.w", graph.layer = #graph.layer<4>}, %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
  %0 = graph.mul %x, %w0 : tensor<4xf32>
  %1 = graph.mul %0, %w1 : tensor<4xf32>
  %2 = graph.add %1, %w2 : tensor<4xf32>
  %3 = graph.mul %2, %w3 : tensor<4xf32>
  %4 = graph.mul %3, %w4 : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// A seed that does not grow evenly.
// CHECK: remark: layers are not folded: 'graph.constant' at {{.*}} is not in each of the layers, or not the same
// CHECK-NOT: graph.folded
func.func @logits(
    %w0: tensor<1xi64> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<1xi64> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<1xi64> {graph.state = "h.2.w", graph.layer = #graph.layer<2>}, %w3: tensor<1xi64> {graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<1xi64> {graph.state = "h.4.w", graph.layer = #graph.layer<4>}, %x: tensor<1xi64> {graph.input = "x"}) -> tensor<1xi64> {
  %c0 = graph.constant dense<0> : tensor<1xi64>
  %c1 = graph.constant dense<1> : tensor<1xi64>
  %c2 = graph.constant dense<2> : tensor<1xi64>
  %c3 = graph.constant dense<4> : tensor<1xi64>
  %c4 = graph.constant dense<5> : tensor<1xi64>
  %s0 = graph.add %w0, %c0 : tensor<1xi64>
  %s1 = graph.add %w1, %c1 : tensor<1xi64>
  %s2 = graph.add %w2, %c2 : tensor<1xi64>
  %s3 = graph.add %w3, %c3 : tensor<1xi64>
  %s4 = graph.add %w4, %c4 : tensor<1xi64>
  %0 = graph.mul %x, %s0 : tensor<1xi64>
  %1 = graph.mul %0, %s1 : tensor<1xi64>
  %2 = graph.mul %1, %s2 : tensor<1xi64>
  %3 = graph.mul %2, %s3 : tensor<1xi64>
  %4 = graph.mul %3, %s4 : tensor<1xi64>
  return %4 : tensor<1xi64>
}

// -----

// What each layer hands on is handed out.
// CHECK: remark: layers are not folded: 'func.return' at {{.*}} reads something of one layer
// CHECK-NOT: graph.folded
func.func @hidden(
    %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>}, %w3: tensor<4xf32> {graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.state = "h.4.w", graph.layer = #graph.layer<4>}, %x: tensor<4xf32> {graph.input = "x"}) ->
    (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = graph.mul %x, %w0 : tensor<4xf32>
  %1 = graph.mul %0, %w1 : tensor<4xf32>
  %2 = graph.mul %1, %w2 : tensor<4xf32>
  %3 = graph.mul %2, %w3 : tensor<4xf32>
  %4 = graph.mul %3, %w4 : tensor<4xf32>
  return %0, %1, %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A sum reads what a loop carries for one of them.
// CHECK: remark: layers are not folded: 'graph.loop' at {{.*}} does not carry the same for each of the layers
// CHECK-NOT: graph.folded
func.func @sums(
    %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>}, %w3: tensor<4xf32> {graph.state = "h.3.w", graph.layer = #graph.layer<3>},
    %w4: tensor<4xf32> {graph.state = "h.4.w", graph.layer = #graph.layer<4>}, %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
  %s:6 = graph.loop 2 (%i, %v0 = %x, %v1 = %x, %v2 = %x, %v3 = %x, %v4 = %x, %s = %x) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    %0 = graph.mul %w0, %w0 : tensor<4xf32>
    %1 = graph.mul %w1, %w1 : tensor<4xf32>
    %2 = graph.mul %w2, %w2 : tensor<4xf32>
    %3 = graph.mul %w3, %w3 : tensor<4xf32>
    %4 = graph.mul %w4, %w4 : tensor<4xf32>
    %5 = graph.add %s, %v3 : tensor<4xf32>
    graph.yield %0, %1, %2, %3, %4, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
  return %s#5 : tensor<4xf32>
}

// -----

// Too few to gain by it, and a number far away.
// CHECK: remark: layers are not folded: no five in a row have the same state and blocks
// CHECK-NOT: graph.folded
func.func @logits(
    %w0: tensor<4xf32> {graph.state = "h.0.w", graph.layer = #graph.layer<0>}, %w1: tensor<4xf32> {graph.state = "h.1.w", graph.layer = #graph.layer<1>},
    %w2: tensor<4xf32> {graph.state = "h.2.w", graph.layer = #graph.layer<2>}, %w3: tensor<4xf32> {graph.state = "h.4095.w", graph.layer = #graph.layer<4095>},
    %x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
  %0 = graph.mul %x, %w0 : tensor<4xf32>
  %1 = graph.mul %0, %w1 : tensor<4xf32>
  %2 = graph.mul %1, %w2 : tensor<4xf32>
  %3 = graph.mul %2, %w3 : tensor<4xf32>
  return %3 : tensor<4xf32>
}
