// RUN: tessera-opt %s --add-overflow-rounds | FileCheck %s
// What is between send_rows and return_rows stands in a loop once more; an exchange with room for all rows stays as it is.

// CHECK-LABEL: func.func private @bounded
// CHECK: %[[FIRST:.*]] = graph.return_rows
// CHECK: %[[ALL:.*]] = graph.loop 1 (%{{.*}}, %[[SUM:.*]] = %[[FIRST]]) : (tensor<8x4xf32>) attributes {overflow} {
// CHECK: %[[SENT:.*]], %[[THEIRS:.*]] = graph.send_rows %arg0
// CHECK: %[[Y:.*]] = graph.grouped_matmul %[[SENT]], %arg3 groups %[[THEIRS]]
// CHECK: %[[MORE:.*]] = graph.return_rows %[[Y]]
// CHECK: %[[NEXT:.*]] = graph.add %[[SUM]], %[[MORE]]
// CHECK: graph.yield %[[NEXT]]
// CHECK: return %[[ALL]]
func.func private @bounded(%rows: tensor<8x4xf32>, %slots: tensor<4x2xi32>, %groups: tensor<3xi32>, %w: tensor<2x4x4xf32>) -> tensor<8x4xf32> {
  %sent, %theirs = graph.send_rows %rows slots %slots groups %groups {buffer = 1.5 : f64} : (tensor<8x4xf32>, tensor<4x2xi32>, tensor<3xi32>) -> (tensor<8x4xf32>, tensor<3xi32>)
  %y = graph.grouped_matmul %sent, %w groups %theirs : (tensor<8x4xf32>, tensor<2x4x4xf32>, tensor<3xi32>) -> tensor<8x4xf32>
  %back = graph.return_rows %y slots %slots groups %groups {buffer = 1.5 : f64} : (tensor<8x4xf32>, tensor<4x2xi32>, tensor<3xi32>) -> tensor<8x4xf32>
  return %back : tensor<8x4xf32>
}

// CHECK-LABEL: func.func private @unbounded
// CHECK-NOT: graph.loop
func.func private @unbounded(%rows: tensor<8x4xf32>, %slots: tensor<4x2xi32>, %groups: tensor<3xi32>, %w: tensor<2x4x4xf32>) -> tensor<8x4xf32> {
  %sent, %theirs = graph.send_rows %rows slots %slots groups %groups : (tensor<8x4xf32>, tensor<4x2xi32>, tensor<3xi32>) -> (tensor<8x4xf32>, tensor<3xi32>)
  %y = graph.grouped_matmul %sent, %w groups %theirs : (tensor<8x4xf32>, tensor<2x4x4xf32>, tensor<3xi32>) -> tensor<8x4xf32>
  %back = graph.return_rows %y slots %slots groups %groups : (tensor<8x4xf32>, tensor<4x2xi32>, tensor<3xi32>) -> tensor<8x4xf32>
  return %back : tensor<8x4xf32>
}
