// RUN: tessera-opt %s --split-input-file --unroll-loops --verify-diagnostics | FileCheck %s

// Two trips are in flight. Of nine trips there are four groups of two, and one
// that is left. The rows of a group are found by its index.
// CHECK-LABEL: func.func @pairs
// CHECK-SAME: (%[[ROWS:.*]]: tensor<9x4xf32>, %[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>)
// CHECK: %[[LOOP:.*]]:2 = graph.loop 4 (%[[I:.*]], %[[A:.*]] = %[[X]], %[[B:.*]] = %[[Y]]) : (tensor<4xf32>, tensor<4xf32>) attributes {graph.layer = #graph.layer<1>} {
// CHECK:   %[[EIGHT:.*]] = graph.slice %[[ROWS]] [0, 0] : tensor<9x4xf32> -> tensor<8x4xf32>
// CHECK:   %[[PAIRS:.*]] = graph.reshape %[[EIGHT]] : tensor<8x4xf32> -> tensor<4x2x4xf32>
// CHECK:   %[[PAIR:.*]] = graph.dynamic_slice %[[PAIRS]][%[[I]]]
// CHECK:   %[[ONE:.*]] = graph.slice %[[PAIR]] [0, 0] : tensor<2x4xf32> -> tensor<1x4xf32>
// CHECK:   %[[ROW:.*]] = graph.reshape %[[ONE]] : tensor<1x4xf32> -> tensor<4xf32>
// CHECK:   %[[M:.*]] = tile.launch @f(%[[A]], %[[ROW]])
// CHECK:   graph.slice %{{.*}} [1, 0] : tensor<2x4xf32> -> tensor<1x4xf32>
// CHECK:   %[[N:.*]] = tile.launch @f(%[[B]], %{{.*}})
// CHECK:   graph.yield %[[M]], %[[N]]
// CHECK: graph.slice %[[ROWS]] [8, 0] : tensor<9x4xf32> -> tensor<1x4xf32>
// CHECK: %[[LAST:.*]] = tile.launch @f(%[[LOOP]]#0, %{{.*}})
// CHECK: return %[[LOOP]]#1, %[[LAST]]
func.func @pairs(%rows: tensor<9x4xf32>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %r:2 = graph.loop 9 (%i, %a = %x, %b = %y) : (tensor<4xf32>, tensor<4xf32>) attributes {graph.in_flight = 2 : i64, graph.layer = #graph.layer<1>} {
    %row = graph.dynamic_slice %rows[%i] : tensor<9x4xf32>, tensor<i32> -> tensor<4xf32>
    %n = tile.launch @f(%a, %row) blocks [1] sizes [] : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    graph.yield %b, %n : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// One group is no loop. A nested loop reads an entry of the outer one's table.
// CHECK-LABEL: func.func @one
// CHECK-SAME: (%[[TABLE:.*]]: tensor<2x4xf32>
// CHECK-NOT: graph.in_flight
// CHECK: graph.loop 3
// CHECK:   graph.slice %[[TABLE]] [0, 0]
// CHECK: graph.loop 3
// CHECK:   graph.slice %[[TABLE]] [1, 0]
// CHECK-NOT: graph.loop
func.func @one(%table: tensor<2x4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %r = graph.loop 2 (%i, %a = %x) : (tensor<4xf32>) attributes {graph.in_flight = 2 : i64} {
    %s = graph.loop 3 (%j, %b = %a) : (tensor<4xf32>) {
      %entry = graph.dynamic_slice %table[%i] : tensor<2x4xf32>, tensor<i32> -> tensor<4xf32>
      %n = tile.launch @f(%b, %entry) blocks [1] sizes [] : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      graph.yield %n : tensor<4xf32>
    }
    graph.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

// Other loops stay.
// CHECK-LABEL: func.func @other
// CHECK: graph.loop 4
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = graph.loop 4 (%i, %a = %x) : (tensor<4xf32>) {
    %n = tile.launch @f(%a) blocks [1] sizes [] : (tensor<4xf32>) -> tensor<4xf32>
    graph.yield %n : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @update(%x: tensor<4x4xf32>, %y: tensor<4xf32>) -> tensor<4x4xf32> {
  %r = graph.loop 4 (%i, %a = %x) : (tensor<4x4xf32>) attributes {graph.in_flight = 2 : i64} {
    // expected-error @+1 {{uses the index of a loop with graph.in_flight, which only graph.dynamic_slice may; remove the attribute}}
    %n = graph.dynamic_update %y into %a[%i] : tensor<4xf32>, tensor<i32> -> tensor<4x4xf32>
    graph.yield %n : tensor<4x4xf32>
  }
  return %r : tensor<4x4xf32>
}
