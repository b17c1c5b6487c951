// RUN: tessera-opt %s --narrow-embeddings | FileCheck %s
// Rows that are rounded are looked up in a narrower copy of the table.

// CHECK-LABEL: func.func @rounded(%arg0: tensor<9x4xf32>
// CHECK-NEXT: %[[COPY:.*]] = graph.convert %arg0 : tensor<9x4xf32> -> tensor<9x4xbf16>
// CHECK-NEXT: %[[ROWS:.*]] = graph.embedding %[[COPY]], %arg1 : (tensor<9x4xbf16>, tensor<3xi32>) -> tensor<3x4xbf16>
// CHECK-NEXT: return %[[ROWS]]
func.func @rounded(%table: tensor<9x4xf32>, %ids: tensor<3xi32>) -> tensor<3x4xbf16> {
  %rows = graph.embedding %table, %ids : (tensor<9x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  %x = graph.convert %rows : tensor<3x4xf32> -> tensor<3x4xbf16>
  return %x : tensor<3x4xbf16>
}

// The head's copy serves both.
// CHECK-LABEL: func.func @tied(
// CHECK-NEXT: %[[COPY:.*]] = graph.convert %arg0
// CHECK-NEXT: %[[ROWS:.*]] = graph.embedding %[[COPY]], %arg1
// CHECK-NEXT: return %[[ROWS]], %[[COPY]]
func.func @tied(%table: tensor<9x4xf32>, %ids: tensor<3xi32>) -> (tensor<3x4xbf16>, tensor<9x4xbf16>) {
  %rows = graph.embedding %table, %ids : (tensor<9x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  %x = graph.convert %rows : tensor<3x4xf32> -> tensor<3x4xbf16>
  %head = graph.convert %table : tensor<9x4xf32> -> tensor<9x4xbf16>
  return %x, %head : tensor<3x4xbf16>, tensor<9x4xbf16>
}

// Positions are added in f32, so rounding the rows first would change the sum.
// CHECK-LABEL: func.func @added(
// CHECK-NEXT: graph.embedding %arg0, %arg1 : (tensor<9x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
func.func @added(%table: tensor<9x4xf32>, %ids: tensor<3xi32>, %positions: tensor<3x4xf32>) -> tensor<3x4xbf16> {
  %rows = graph.embedding %table, %ids : (tensor<9x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  %sum = graph.add %rows, %positions : tensor<3x4xf32>
  %x = graph.convert %sum : tensor<3x4xf32> -> tensor<3x4xbf16>
  return %x : tensor<3x4xbf16>
}
