// RUN: tessera-opt %s --add-log-sums | FileCheck %s

// Exponentials relative to the largest logit, all in f32.

// CHECK-LABEL: func @decode_1
// CHECK-SAME:  -> (tensor<2x8xf32> {graph.output = "logits"}, tensor<2xi32> {graph.output = "token"}, tensor<2xf32> {graph.output = "log_sums"})
// CHECK:       %[[L:.*]] = graph.einsum "bk,vk->bv"
// CHECK:       %[[M:.*]] = graph.reduce %[[L]] max dims [1] : tensor<2x8xf32> -> tensor<2xf32>
// CHECK:       graph.exp
// CHECK-NEXT:  %[[S:.*]] = graph.reduce %{{.*}} sum dims [1] : tensor<2x8xf32> -> tensor<2xf32>
// CHECK-NEXT:  %[[G:.*]] = graph.log %[[S]]
// CHECK-NEXT:  %[[R:.*]] = graph.add %{{.*}}, %[[G]] : tensor<2xf32>
// CHECK-NEXT:  return %[[L]], %arg2, %[[R]]
func.func @decode_1(%w: tensor<8x4xbf16>, %x: tensor<2x4xbf16>, %t: tensor<2xi32>)
    -> (tensor<2x8xf32> {graph.output = "logits"}, tensor<2xi32> {graph.output = "token"}) {
  %l = graph.einsum "bk,vk->bv" %x, %w : (tensor<2x4xbf16>, tensor<8x4xbf16>) -> tensor<2x8xf32>
  return %l, %t : tensor<2x8xf32>, tensor<2xi32>
}

// A program without logits stays what it is.

// CHECK-LABEL: func @embed_1x4
// CHECK-SAME:  -> (tensor<1x4xf32> {graph.output = "embedding"}) {
func.func @embed_1x4(%x: tensor<1x4xf32>) -> (tensor<1x4xf32> {graph.output = "embedding"}) {
  return %x : tensor<1x4xf32>
}
