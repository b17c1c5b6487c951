// RUN: tessera-opt %s --narrow-state --canonicalize --split-input-file | FileCheck %s

// A matrix is read as it is kept, a vector stays f32; rows of a table widen after they were picked; a cache
// comes back as it was taken.

// CHECK-LABEL: func @init
// CHECK-SAME:  -> (tensor<8x4xbf16> {{.*}}, tensor<4xf32> {{.*}})
func.func @init() -> (tensor<8x4xf32> {graph.role = #graph<role parameter>, graph.state = "w"}, tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "b"}) {
  %w = graph.constant dense<1.0> : tensor<8x4xf32>
  %b = graph.constant dense<0.0> : tensor<4xf32>
  return %w, %b : tensor<8x4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func @decode_1
// CHECK-SAME:  %[[W:.*]]: tensor<8x4xbf16> {{{.*}}}, %[[B:.*]]: tensor<4xf32> {{{.*}}}, %[[C:.*]]: tensor<6x4xbf16> {{{.*}}}, %[[I:.*]]: tensor<1xi32>
// CHECK-SAME:  -> (tensor<6x4xbf16> {{.*}}, tensor<1x8xf32> {{.*}})
// CHECK-NEXT:  %[[R:.*]] = graph.embedding %[[W]], %[[I]] : {{.*}} -> tensor<1x4xbf16>
// CHECK-NEXT:  %[[N:.*]] = graph.scatter_rows %[[R]] at %[[I]] into %[[C]]
// CHECK-NEXT:  %[[L:.*]] = graph.einsum "bk,vk->bv" %[[R]], %[[W]]
// CHECK-NEXT:  return %[[N]], %[[L]]
func.func @decode_1(%w: tensor<8x4xf32> {graph.role = #graph<role parameter>, graph.state = "w"}, %b: tensor<4xf32> {graph.role = #graph<role parameter>, graph.state = "b"},
                    %c: tensor<6x4xf32> {graph.role = #graph<role cache>, graph.state = "c"}, %i: tensor<1xi32> {graph.input = "tokens"})
    -> (tensor<6x4xf32> {graph.role = #graph<role cache>, graph.state = "c"}, tensor<1x8xf32> {graph.output = "logits"}) {
  %w16 = graph.convert %w : tensor<8x4xf32> -> tensor<8x4xbf16>
  %c16 = graph.convert %c : tensor<6x4xf32> -> tensor<6x4xbf16>
  %r = graph.embedding %w, %i : (tensor<8x4xf32>, tensor<1xi32>) -> tensor<1x4xf32>
  %r16 = graph.convert %r : tensor<1x4xf32> -> tensor<1x4xbf16>
  %n16 = graph.scatter_rows %r16 at %i into %c16 : tensor<1x4xbf16>, tensor<1xi32>, tensor<6x4xbf16>
  %n = graph.convert %n16 : tensor<6x4xbf16> -> tensor<6x4xf32>
  %l = graph.einsum "bk,vk->bv" %r16, %w16 : (tensor<1x4xbf16>, tensor<8x4xbf16>) -> tensor<1x8xf32>
  return %n, %l : tensor<6x4xf32>, tensor<1x8xf32>
}
