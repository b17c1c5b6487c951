// RUN: tessera-opt %s --normalize-reductions | FileCheck %s

// CHECK-LABEL: func @lastTwo(
// CHECK:       %[[M:.*]] = graph.reshape %{{.*}} : tensor<2x3x4xf32> -> tensor<2x12xf32>
// CHECK:       graph.reduce %[[M]] sum dims [1] : tensor<2x12xf32> -> tensor<2xf32>
func.func @lastTwo(%x: tensor<2x3x4xf32>) -> tensor<2xf32> {
  %s = graph.reduce %x sum dims [1, 2] : tensor<2x3x4xf32> -> tensor<2xf32>
  return %s : tensor<2xf32>
}

// CHECK-LABEL: func @outerAndLast(
// CHECK:       %[[R:.*]] = graph.reduce %{{.*}} max dims [2] : tensor<2x3x4xf32> -> tensor<2x3xf32>
// CHECK:       graph.reduce %[[R]] max dims [0] : tensor<2x3xf32> -> tensor<3xf32>
func.func @outerAndLast(%x: tensor<2x3x4xf32>) -> tensor<3xf32> {
  %s = graph.reduce %x max dims [0, 2] : tensor<2x3x4xf32> -> tensor<3xf32>
  return %s : tensor<3xf32>
}

// A sum of bf16 in two steps is rounded once.

// CHECK-LABEL: func @narrow(
// CHECK:       graph.convert %{{.*}} : tensor<2x3x4xbf16> -> tensor<2x3x4xf32>
// CHECK:       graph.reduce {{.*}} -> tensor<2x3xf32>
// CHECK:       %[[S:.*]] = graph.reduce {{.*}} -> tensor<3xf32>
// CHECK:       graph.convert %[[S]] : tensor<3xf32> -> tensor<3xbf16>
func.func @narrow(%x: tensor<2x3x4xbf16>) -> tensor<3xbf16> {
  %s = graph.reduce %x sum dims [0, 2] : tensor<2x3x4xbf16> -> tensor<3xbf16>
  return %s : tensor<3xbf16>
}

// A scatter onto bf16 is rounded once.

// CHECK-LABEL: func @narrowScatter(
// CHECK-SAME:  %[[U:[a-z0-9]+]]: tensor<7x5xbf16>
// CHECK:       %[[B:.*]] = graph.convert %{{.*}} : tensor<4x5xbf16> -> tensor<4x5xf32>
// CHECK:       %[[S:.*]] = graph.scatter_add %[[U]] at %{{.*}} onto %[[B]] : tensor<7x5xbf16>, tensor<7xi32>, tensor<4x5xf32>
// CHECK:       %[[R:.*]] = graph.convert %[[S]] : tensor<4x5xf32> -> tensor<4x5xbf16>
// CHECK:       return %[[R]]
func.func @narrowScatter(%x: tensor<7x5xbf16>, %ids: tensor<7xi32>, %b: tensor<4x5xbf16>) -> tensor<4x5xbf16> {
  %s = graph.scatter_add %x at %ids onto %b : tensor<7x5xbf16>, tensor<7xi32>, tensor<4x5xbf16>
  return %s : tensor<4x5xbf16>
}

// CHECK-LABEL: func @stay(
// CHECK:       graph.reduce %{{.*}} sum dims [0, 1] : tensor<3x4x5xf32>
// CHECK-NEXT:  graph.reduce %{{.*}} sum dims [0, 1, 2] : tensor<3x4x5xf32>
// CHECK-NEXT:  graph.reduce %{{.*}} sum dims [2] : tensor<3x4x5xf32>
func.func @stay(%x: tensor<3x4x5xf32>) -> (tensor<5xf32>, tensor<f32>, tensor<3x4xf32>) {
  %a = graph.reduce %x sum dims [0, 1] : tensor<3x4x5xf32> -> tensor<5xf32>
  %b = graph.reduce %x sum dims [0, 1, 2] : tensor<3x4x5xf32> -> tensor<f32>
  %c = graph.reduce %x sum dims [2] : tensor<3x4x5xf32> -> tensor<3x4xf32>
  return %a, %b, %c : tensor<5xf32>, tensor<f32>, tensor<3x4xf32>
}

// Nothing is computed with nothing.

// CHECK-LABEL: func @empty(
// CHECK-NOT:   graph.{{(neg|reduce|einsum|pad|scatter_add)}}
// CHECK:       return
func.func @empty(%x: tensor<0x5xf32>, %y: tensor<3x0xf32>, %b: tensor<4x5xf32>, %ids: tensor<0xi32>) -> (tensor<0x5xf32>, tensor<5xf32>, tensor<3x5xf32>, tensor<2x5xf32>, tensor<4x5xf32>) {
  %n = graph.neg %x : tensor<0x5xf32>
  %s = graph.reduce %x sum dims [0] : tensor<0x5xf32> -> tensor<5xf32>
  %e = graph.einsum "mk,kn->mn" %y, %x : (tensor<3x0xf32>, tensor<0x5xf32>) -> tensor<3x5xf32>
  %p = graph.pad %x low [1, 0] : tensor<0x5xf32> -> tensor<2x5xf32>
  %u = graph.scatter_add %x at %ids onto %b : tensor<0x5xf32>, tensor<0xi32>, tensor<4x5xf32>
  return %n, %s, %e, %p, %u : tensor<0x5xf32>, tensor<5xf32>, tensor<3x5xf32>, tensor<2x5xf32>, tensor<4x5xf32>
}

// CHECK-LABEL: func @emptyConstant(
// CHECK:       graph.constant dense<0.000000e+00> : tensor<0x5xf32>
func.func @emptyConstant() -> tensor<0x5xf32> {
  %c = graph.constant dense<3.0> : tensor<0x5xf32>
  return %c : tensor<0x5xf32>
}

// CHECK-LABEL: func @emptyPart(
// CHECK:       graph.concat %{{.*}}, %{{.*}} dim 0 : (tensor<2x5xf32>, tensor<3x5xf32>)
func.func @emptyPart(%x: tensor<0x5xf32>, %y: tensor<2x5xf32>, %z: tensor<3x5xf32>) -> tensor<5x5xf32> {
  %c = graph.concat %y, %x, %z dim 0 : (tensor<2x5xf32>, tensor<0x5xf32>, tensor<3x5xf32>) -> tensor<5x5xf32>
  return %c : tensor<5x5xf32>
}
