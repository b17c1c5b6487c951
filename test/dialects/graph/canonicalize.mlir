// RUN: tessera-opt %s --canonicalize --split-input-file | FileCheck %s

// Conversions of constants happen at compile time: float rounds to nearest
// even, float to integer truncates, booleans are 0 and 1.
// CHECK-LABEL: func @convert_constant
func.func @convert_constant() -> (tensor<2xbf16>, tensor<3xi32>, tensor<2xf32>, tensor<2xi64>, tensor<2xi8>, tensor<2xf32>) {
  // CHECK-DAG: dense<[1.000000e+00, 1.015630e+00]> : tensor<2xbf16>
  %0 = graph.constant dense<[1.00390625, 1.01171875]> : tensor<2xf32>
  %1 = graph.convert %0 : tensor<2xf32> -> tensor<2xbf16>
  // CHECK-DAG: dense<[1, -1, 0]> : tensor<3xi32>
  %2 = graph.constant dense<[1.9, -1.9, 0.5]> : tensor<3xf32>
  %3 = graph.convert %2 : tensor<3xf32> -> tensor<3xi32>
  // CHECK-DAG: dense<[1.000000e+00, 0.000000e+00]> : tensor<2xf32>
  %4 = graph.constant dense<[true, false]> : tensor<2xi1>
  %5 = graph.convert %4 : tensor<2xi1> -> tensor<2xf32>
  // CHECK-DAG: dense<[-5, 7]> : tensor<2xi64>
  %6 = graph.constant dense<[-5, 7]> : tensor<2xi8>
  %7 = graph.convert %6 : tensor<2xi8> -> tensor<2xi64>
  // CHECK-DAG: dense<[-128, 1]> : tensor<2xi8>
  %8 = graph.constant dense<[128, 257]> : tensor<2xi32>
  %9 = graph.convert %8 : tensor<2xi32> -> tensor<2xi8>
  // CHECK-DAG: dense<[2.550000e+02, 1.000000e+00]> : tensor<2xf32>
  %10 = graph.constant dense<[255, 1]> : tensor<2xui8>
  %11 = graph.convert %10 : tensor<2xui8> -> tensor<2xf32>
  // CHECK-NOT: graph.convert
  return %1, %3, %5, %7, %9, %11 : tensor<2xbf16>, tensor<3xi32>, tensor<2xf32>, tensor<2xi64>, tensor<2xi8>, tensor<2xf32>
}

// -----

// CHECK-LABEL: func @convert_there_and_back
// CHECK-SAME: (%[[X:.*]]: tensor<4xbf16>, %[[Y:.*]]: tensor<4xf32>)
func.func @convert_there_and_back(%x: tensor<4xbf16>, %y: tensor<4xf32>) -> (tensor<4xbf16>, tensor<4xf32>, tensor<4xf32>) {
  %0 = graph.convert %x : tensor<4xbf16> -> tensor<4xf32>
  %1 = graph.convert %0 : tensor<4xf32> -> tensor<4xbf16>
  // Through a narrower type the value changes.
  // CHECK: %[[NARROW:.*]] = graph.convert %[[Y]] : tensor<4xf32> -> tensor<4xbf16>
  // CHECK: %[[BACK:.*]] = graph.convert %[[NARROW]]
  %2 = graph.convert %y : tensor<4xf32> -> tensor<4xbf16>
  %3 = graph.convert %2 : tensor<4xbf16> -> tensor<4xf32>
  %4 = graph.convert %y : tensor<4xf32> -> tensor<4xf32>
  // CHECK: return %[[X]], %[[BACK]], %[[Y]]
  return %1, %3, %4 : tensor<4xbf16>, tensor<4xf32>, tensor<4xf32>
}

// -----

// f16 and bf16 are equally wide, but neither holds the other.
// CHECK-LABEL: func @convert_halves
func.func @convert_halves(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  // CHECK-COUNT-2: graph.convert
  %0 = graph.convert %x : tensor<4xbf16> -> tensor<4xf16>
  %1 = graph.convert %0 : tensor<4xf16> -> tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// -----

// CHECK-LABEL: func @views_of_themselves
// CHECK-SAME: (%[[X:.*]]: tensor<2x3xf32>)
func.func @views_of_themselves(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = graph.reshape %x : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = graph.transpose %0 [0, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = graph.broadcast %1 dims [0, 1] : tensor<2x3xf32> -> tensor<2x3xf32>
  %3 = graph.slice %2 [0, 0] : tensor<2x3xf32> -> tensor<2x3xf32>
  // CHECK-NEXT: return %[[X]]
  return %3 : tensor<2x3xf32>
}

// -----

// Equal views in a row become one.
// CHECK-LABEL: func @views_of_views
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x5xf32>)
func.func @views_of_views(%x: tensor<2x3x5xf32>) -> (tensor<5x6xf32>, tensor<3x5x2xf32>, tensor<2x7x3x8x5xf32>, tensor<1x1x2xf32>) {
  // CHECK-DAG: graph.reshape %[[X]] : tensor<2x3x5xf32> -> tensor<5x6xf32>
  %0 = graph.reshape %x : tensor<2x3x5xf32> -> tensor<30xf32>
  %1 = graph.reshape %0 : tensor<30xf32> -> tensor<5x6xf32>
  // CHECK-DAG: graph.transpose %[[X]] [1, 2, 0] : tensor<2x3x5xf32> -> tensor<3x5x2xf32>
  %2 = graph.transpose %x [2, 0, 1] : tensor<2x3x5xf32> -> tensor<5x2x3xf32>
  %3 = graph.transpose %2 [2, 0, 1] : tensor<5x2x3xf32> -> tensor<3x5x2xf32>
  // CHECK-DAG: graph.broadcast %[[X]] dims [0, 2, 4] : tensor<2x3x5xf32> -> tensor<2x7x3x8x5xf32>
  %4 = graph.broadcast %x dims [0, 1, 3] : tensor<2x3x5xf32> -> tensor<2x3x8x5xf32>
  %5 = graph.broadcast %4 dims [0, 2, 3, 4] : tensor<2x3x8x5xf32> -> tensor<2x7x3x8x5xf32>
  // CHECK-DAG: graph.slice %[[X]] [1, 1, 3] : tensor<2x3x5xf32> -> tensor<1x1x2xf32>
  %6 = graph.slice %x [1, 0, 2] : tensor<2x3x5xf32> -> tensor<1x2x3xf32>
  %7 = graph.slice %6 [0, 1, 1] : tensor<1x2x3xf32> -> tensor<1x1x2xf32>
  return %1, %3, %5, %7 : tensor<5x6xf32>, tensor<3x5x2xf32>, tensor<2x7x3x8x5xf32>, tensor<1x1x2xf32>
}

// -----

// Two transpositions that undo each other vanish.
// CHECK-LABEL: func @transpose_back
// CHECK-SAME: (%[[X:.*]]: tensor<2x3xf32>)
func.func @transpose_back(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = graph.transpose %x [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>
  %1 = graph.transpose %0 [1, 0] : tensor<3x2xf32> -> tensor<2x3xf32>
  // CHECK-NEXT: return %[[X]]
  return %1 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func @views_of_constants
func.func @views_of_constants() -> (tensor<4x4xf32>, tensor<3x2xi32>, tensor<3x2xi32>) {
  // CHECK-DAG: %[[A:.*]] = graph.constant dense<2.000000e+00> : tensor<4x4xf32>
  // CHECK-DAG: %[[B:.*]] = graph.constant dense<{{\[\[}}1, 2], [3, 4], [5, 6]]> : tensor<3x2xi32>
  // CHECK-DAG: %[[C:.*]] = graph.constant dense<7> : tensor<3x2xi32>
  %0 = graph.constant dense<2.0> : tensor<f32>
  %1 = graph.broadcast %0 dims [] : tensor<f32> -> tensor<8x4xf32>
  %2 = graph.slice %1 [2, 0] : tensor<8x4xf32> -> tensor<4x4xf32>
  %3 = graph.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
  %4 = graph.reshape %3 : tensor<6xi32> -> tensor<3x2xi32>
  %5 = graph.constant dense<7> : tensor<2x3xi32>
  %6 = graph.transpose %5 [1, 0] : tensor<2x3xi32> -> tensor<3x2xi32>
  // CHECK: return %[[A]], %[[B]], %[[C]]
  return %2, %4, %6 : tensor<4x4xf32>, tensor<3x2xi32>, tensor<3x2xi32>
}

// -----

// CHECK-LABEL: func @neutral
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[I:.*]]: tensor<4xi32>)
func.func @neutral(%x: tensor<4xf32>, %i: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %minus = graph.constant dense<-0.0> : tensor<f32>
  %negative = graph.broadcast %minus dims [] : tensor<f32> -> tensor<4xf32>
  %zeros = graph.constant dense<0.0> : tensor<4xf32>
  %ones = graph.constant dense<1.0> : tensor<4xf32>
  %izeros = graph.constant dense<0> : tensor<4xi32>
  %iones = graph.constant dense<1> : tensor<4xi32>
  %0 = graph.add %negative, %x : tensor<4xf32>
  %1 = graph.mul %x, %ones : tensor<4xf32>
  %2 = graph.add %i, %izeros : tensor<4xi32>
  %3 = graph.mul %iones, %i : tensor<4xi32>
  // Infinity times zero is not zero.
  // CHECK: %[[PRODUCT:.*]] = graph.mul %[[X]], %{{.*}}
  %4 = graph.mul %x, %zeros : tensor<4xf32>
  // CHECK: %[[SUM:.*]] = graph.add %[[X]], %{{.*}}
  %5 = graph.add %x, %ones : tensor<4xf32>
  // -0.0 plus 0.0 is 0.0.
  // CHECK: %[[POSITIVE:.*]] = graph.add %[[X]], %{{.*}}
  %6 = graph.add %x, %zeros : tensor<4xf32>
  // CHECK: return %[[X]], %[[X]], %[[I]], %[[I]], %[[PRODUCT]], %[[SUM]], %[[POSITIVE]]
  return %0, %1, %2, %3, %4, %5, %6 : tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// The gradients of three slices join into what was sliced.
// CHECK-LABEL: func.func @pads_to_concat
// CHECK-SAME: %[[A:[a-z0-9]+]]: {{.*}}, %[[B:[a-z0-9]+]]: {{.*}}, %[[C:[a-z0-9]+]]:
// CHECK: %[[R:.*]] = graph.concat %[[A]], %[[B]], %[[C]] dim 1
// CHECK: return %[[R]]
func.func @pads_to_concat(%a: tensor<2x3xf32>, %b: tensor<2x1xf32>, %c: tensor<2x2xf32>) -> tensor<2x6xf32> {
  %0 = graph.pad %c low [0, 4] : tensor<2x2xf32> -> tensor<2x6xf32>
  %1 = graph.pad %b low [0, 3] : tensor<2x1xf32> -> tensor<2x6xf32>
  %2 = graph.pad %a low [0, 0] : tensor<2x3xf32> -> tensor<2x6xf32>
  %3 = graph.add %0, %1 : tensor<2x6xf32>
  %4 = graph.add %3, %2 : tensor<2x6xf32>
  return %4 : tensor<2x6xf32>
}

// What a slice takes of one input of a concatenation it takes of that input.
// CHECK-LABEL: func.func @slices_of_concat
// CHECK-SAME: %[[A:[a-z0-9]+]]: {{.*}}, %[[B:[a-z0-9]+]]:
// CHECK: %[[TABLE:.*]] = graph.concat %[[A]], %[[B]] dim 1
// CHECK: %[[PART:.*]] = graph.slice %[[B]] [1, 0] : tensor<2x2xf32> -> tensor<1x1xf32>
// CHECK: %[[BOTH:.*]] = graph.slice %[[TABLE]] [0, 2]
// CHECK: return %[[B]], %[[PART]], %[[BOTH]]
func.func @slices_of_concat(%a: tensor<2x3xf32>, %b: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<1x1xf32>, tensor<2x2xf32>) {
  %table = graph.concat %a, %b dim 1 : (tensor<2x3xf32>, tensor<2x2xf32>) -> tensor<2x5xf32>
  %whole = graph.slice %table [0, 3] : tensor<2x5xf32> -> tensor<2x2xf32>
  %part = graph.slice %table [1, 3] : tensor<2x5xf32> -> tensor<1x1xf32>
  %both = graph.slice %table [0, 2] : tensor<2x5xf32> -> tensor<2x2xf32>
  return %whole, %part, %both : tensor<2x2xf32>, tensor<1x1xf32>, tensor<2x2xf32>
}

// A gap between the terms stays a sum.
// CHECK-LABEL: func.func @pads_with_gap
// CHECK: graph.add
func.func @pads_with_gap(%a: tensor<2x3xf32>, %c: tensor<2x2xf32>) -> tensor<2x6xf32> {
  %0 = graph.pad %c low [0, 4] : tensor<2x2xf32> -> tensor<2x6xf32>
  %1 = graph.pad %a low [0, 0] : tensor<2x3xf32> -> tensor<2x6xf32>
  %2 = graph.add %0, %1 : tensor<2x6xf32>
  return %2 : tensor<2x6xf32>
}
