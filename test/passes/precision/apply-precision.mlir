// RUN: tessera-opt %s --apply-precision=compute=bf16 --canonicalize --split-input-file | FileCheck %s
// RUN: tessera-opt %s --apply-precision=compute=fp32 --split-input-file | FileCheck %s --check-prefix=FP32

// FP32-NOT: bf16

// Blocks take and give bf16, but for vectors. A bias is added to the accumulators in f32; what the gradient of an
// activation reads is stored in bf16 and computed with in f32; a residual sum is rounded once.

// CHECK-LABEL: func private @layer(
// CHECK-SAME:  %[[X:.*]]: tensor<4x8xbf16>, %[[G:.*]]: tensor<8xf32>, %[[W1:.*]]: tensor<8x16xbf16>, %[[B:.*]]: tensor<16xf32>, %[[W2:.*]]: tensor<16x8xbf16>, %{{.*}}: tensor<i64>) -> tensor<4x8xbf16>
// CHECK-NEXT:  %[[N:.*]] = graph.rms_norm %[[X]], %[[G]] eps {{.*}} : tensor<4x8xbf16>, tensor<8xf32>
// CHECK-NEXT:  %[[H:.*]] = graph.einsum "mk,kn->mn" %[[N]], %[[W1]] : {{.*}} -> tensor<4x16xf32>
// CHECK-NEXT:  %[[BB:.*]] = graph.broadcast %[[B]] dims [1] : tensor<16xf32> -> tensor<4x16xf32>
// CHECK-NEXT:  %[[HB:.*]] = graph.add %[[H]], %[[BB]] : tensor<4x16xf32>
// CHECK-NEXT:  %[[Z:.*]] = graph.convert %[[HB]] : tensor<4x16xf32> -> tensor<4x16xbf16>
// CHECK-NEXT:  %[[ZW:.*]] = graph.convert %[[Z]] : tensor<4x16xbf16> -> tensor<4x16xf32>
// CHECK-NEXT:  %[[A:.*]] = graph.gelu %[[ZW]] tanh : tensor<4x16xf32>
// CHECK-NEXT:  %[[AN:.*]] = graph.convert %[[A]] : tensor<4x16xf32> -> tensor<4x16xbf16>
// CHECK-NEXT:  %[[O:.*]] = graph.einsum "mk,kn->mn" %[[AN]], %[[W2]] : {{.*}} -> tensor<4x8xf32>
// CHECK-NEXT:  %[[D:.*]] = graph.dropout %[[O]] {{.*}} : tensor<4x8xf32>
// CHECK-NEXT:  %[[XW:.*]] = graph.convert %[[X]] : tensor<4x8xbf16> -> tensor<4x8xf32>
// CHECK-NEXT:  %[[R:.*]] = graph.add %[[XW]], %[[D]] : tensor<4x8xf32>
// CHECK-NEXT:  %[[RN:.*]] = graph.convert %[[R]] : tensor<4x8xf32> -> tensor<4x8xbf16>
// CHECK-NEXT:  return %[[RN]]
func.func private @layer(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %w1: tensor<8x16xf32>, %b: tensor<16xf32>, %w2: tensor<16x8xf32>, %s: tensor<i64>) -> tensor<4x8xf32> attributes {graph.block} {
  %n = graph.rms_norm %x, %g eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>
  %h = graph.einsum "mk,kn->mn" %n, %w1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %bb = graph.broadcast %b dims [1] : tensor<16xf32> -> tensor<4x16xf32>
  %hb = graph.add %h, %bb : tensor<4x16xf32>
  %a = graph.gelu %hb tanh : tensor<4x16xf32>
  %o = graph.einsum "mk,kn->mn" %a, %w2 : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %d = graph.dropout %o rate 0.1 stream 1 seed %s step %s : tensor<4x8xf32>, tensor<i64>, tensor<i64>
  %r = graph.add %x, %d : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// Masters stay f32 arguments, each matrix is converted once at the start. Rows of the embedding are picked from the
// master; the sum of two embeddings is rounded once.

// CHECK-LABEL: func @loss
// CHECK-SAME:  %[[E:arg0]]: tensor<32x8xf32> {{.*}} %[[G:arg1]]: tensor<8xf32>
// CHECK-DAG:   %[[W1:.*]] = graph.convert %arg2 : tensor<8x16xf32> -> tensor<8x16xbf16>
// CHECK-DAG:   %[[W2:.*]] = graph.convert %arg4 : tensor<16x8xf32> -> tensor<16x8xbf16>
// CHECK-DAG:   %[[E16:.*]] = graph.convert %[[E]] : tensor<32x8xf32> -> tensor<32x8xbf16>
// CHECK:       %[[X0:.*]] = graph.embedding %[[E]], %{{.*}} -> tensor<4x8xf32>
// CHECK-NEXT:  %[[X1:.*]] = graph.embedding %[[E]], %{{.*}} -> tensor<4x8xf32>
// CHECK-NEXT:  %[[S:.*]] = graph.add %[[X0]], %[[X1]] : tensor<4x8xf32>
// CHECK-NEXT:  %[[X:.*]] = graph.convert %[[S]] : tensor<4x8xf32> -> tensor<4x8xbf16>
// CHECK-NEXT:  %[[Y:.*]] = call @layer(%[[X]], %[[G]], %[[W1]], %arg3, %[[W2]], %{{.*}}) : {{.*}} -> tensor<4x8xbf16>
// CHECK-NEXT:  %[[Z:.*]] = call @layer(%[[Y]], %[[G]], %[[W1]], %arg3, %[[W2]], %{{.*}}) : {{.*}} -> tensor<4x8xbf16>
// CHECK-NEXT:  graph.linear_cross_entropy %[[Z]], %[[E16]], %{{.*}} : tensor<4x8xbf16>, tensor<32x8xbf16>, tensor<4xi32> -> tensor<f32>
func.func @loss(%e: tensor<32x8xf32> {graph.state = "e", graph.role = #graph<role parameter>}, %g: tensor<8xf32> {graph.state = "g", graph.role = #graph<role parameter>},
                %w1: tensor<8x16xf32> {graph.state = "w1", graph.role = #graph<role parameter>}, %b: tensor<16xf32> {graph.state = "b", graph.role = #graph<role parameter>},
                %w2: tensor<16x8xf32> {graph.state = "w2", graph.role = #graph<role parameter>}, %t: tensor<4xi32>, %s: tensor<i64>) -> tensor<f32> {
  %x0 = graph.embedding %e, %t : (tensor<32x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %x1 = graph.embedding %e, %t : (tensor<32x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %x = graph.add %x0, %x1 : tensor<4x8xf32>
  %y = call @layer(%x, %g, %w1, %b, %w2, %s) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16x8xf32>, tensor<i64>) -> tensor<4x8xf32>
  %z = call @layer(%y, %g, %w1, %b, %w2, %s) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16x8xf32>, tensor<i64>) -> tensor<4x8xf32>
  %l = graph.linear_cross_entropy %z, %e, %t : tensor<4x8xf32>, tensor<32x8xf32>, tensor<4xi32> -> tensor<f32>
  return %l : tensor<f32>
}

// What takes no parameters, such as @init, stays as it is.
// CHECK-LABEL: func @init
// CHECK-SAME:  -> tensor<4x4xf32>
// CHECK:       return %{{.*}} : tensor<4x4xf32>
func.func @init(%s: tensor<i64>) -> tensor<4x4xf32> {
  %0 = graph.random normal stream 0 seed %s step %s : tensor<i64>, tensor<i64> -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// A gated activation: both halves are read by gradients and so leave their contraction in bf16; what is elementwise
// in them is not stored and not rounded. Views go with what they show. Attention keeps its statistics in f32.

// CHECK-LABEL: func private @gate
// CHECK:       %[[U:.*]] = graph.einsum "mk,kn->mn" {{.*}} -> tensor<4x16xbf16>
// CHECK-NEXT:  %[[L:.*]] = graph.slice %[[U]] [0, 0] : tensor<4x16xbf16>
// CHECK-NEXT:  %[[R:.*]] = graph.slice %[[U]] [0, 8] : tensor<4x16xbf16>
// CHECK-NEXT:  %[[LW:.*]] = graph.convert %[[L]]
// CHECK-NEXT:  %[[A:.*]] = graph.silu %[[LW]] : tensor<4x8xf32>
// CHECK-NEXT:  %[[RW:.*]] = graph.convert %[[R]]
// CHECK-NEXT:  %[[M:.*]] = graph.mul %[[A]], %[[RW]] : tensor<4x8xf32>
// CHECK-NEXT:  %[[MN:.*]] = graph.convert %[[M]] : tensor<4x8xf32> -> tensor<4x8xbf16>
// CHECK-NEXT:  %[[Q:.*]] = graph.reshape %[[MN]] : tensor<4x8xbf16> -> tensor<1x4x2x4xbf16>
// CHECK-NEXT:  %[[QR:.*]] = graph.rope %[[Q]] {{.*}} : tensor<1x4x2x4xbf16>
// CHECK-NEXT:  graph.attention %[[QR]], %[[QR]], %[[Q]] {{.*}} -> tensor<1x4x2x4xbf16>, tensor<1x2x4xf32>
func.func private @gate(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> (tensor<1x4x2x4xf32>, tensor<1x2x4xf32>) attributes {graph.block} {
  %u = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %l = graph.slice %u [0, 0] : tensor<4x16xf32> -> tensor<4x8xf32>
  %r = graph.slice %u [0, 8] : tensor<4x16xf32> -> tensor<4x8xf32>
  %a = graph.silu %l : tensor<4x8xf32>
  %m = graph.mul %a, %r : tensor<4x8xf32>
  %q = graph.reshape %m : tensor<4x8xf32> -> tensor<1x4x2x4xf32>
  %qr = graph.rope %q {frequencies = array<f64: 1.0, 0.1>} : tensor<1x4x2x4xf32>
  %o, %lse = graph.attention %qr, %qr, %q scale 0.5 {causal} : tensor<1x4x2x4xf32>, tensor<1x4x2x4xf32>, tensor<1x4x2x4xf32> -> tensor<1x4x2x4xf32>, tensor<1x2x4xf32>
  return %o, %lse : tensor<1x4x2x4xf32>, tensor<1x2x4xf32>
}

// -----

// Statistics, and what is computed from them alone, are f32 whatever their rank. A mean of squares sees the squares
// in f32.

// CHECK-LABEL: func private @statistics
// CHECK:       %[[XW:.*]] = graph.convert %arg0
// CHECK:       %[[S:.*]] = graph.mul %{{.*}}, %{{.*}} : tensor<2x4x8xf32>
// CHECK-NEXT:  %[[M:.*]] = graph.reduce %[[S]] sum dims [2] : tensor<2x4x8xf32> -> tensor<2x4xf32>
// CHECK-NEXT:  %[[R:.*]] = graph.rsqrt %[[M]] : tensor<2x4xf32>
// CHECK-NEXT:  %[[B:.*]] = graph.broadcast %[[R]] dims [0, 1] : tensor<2x4xf32> -> tensor<2x4x8xf32>
// CHECK:       graph.mul %{{.*}}, %[[B]] : tensor<2x4x8xf32>
func.func private @statistics(%x: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> attributes {graph.block} {
  %s = graph.mul %x, %x : tensor<2x4x8xf32>
  %m = graph.reduce %s sum dims [2] : tensor<2x4x8xf32> -> tensor<2x4xf32>
  %r = graph.rsqrt %m : tensor<2x4xf32>
  %b = graph.broadcast %r dims [0, 1] : tensor<2x4xf32> -> tensor<2x4x8xf32>
  %y = graph.mul %x, %b : tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}

// -----

// What the host reads keeps its type: logits come out of the accumulators in f32.

// CHECK-LABEL: func @logits
// CHECK-SAME:  -> (tensor<4x32xf32> {graph.output = "logits"})
// CHECK:       %[[L:.*]] = graph.einsum "mk,vk->mv" {{.*}} : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> tensor<4x32xf32>
// CHECK-NEXT:  return %[[L]]
func.func @logits(%e: tensor<32x8xf32> {graph.state = "e", graph.role = #graph<role parameter>}, %t: tensor<4xi32>) -> (tensor<4x32xf32> {graph.output = "logits"}) {
  %x = graph.embedding %e, %t : (tensor<32x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %l = graph.einsum "mk,vk->mv" %x, %e : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  return %l : tensor<4x32xf32>
}

// -----

// So it is where a program reads them, too: everybody reads what the host does.

// CHECK-LABEL: func @decode
// CHECK:       %[[L:.*]] = graph.einsum "mk,vk->mv" {{.*}} : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> tensor<4x32xf32>
// CHECK-NEXT:  %[[K:.*]] = graph.top_k %[[L]] : (tensor<4x32xf32>)
// CHECK-NEXT:  return %[[L]], %[[K]]
func.func @decode(%e: tensor<32x8xf32> {graph.state = "e", graph.role = #graph<role parameter>}, %t: tensor<4xi32>) -> (tensor<4x32xf32> {graph.output = "logits"}, tensor<4x2xi32>) {
  %x = graph.embedding %e, %t : (tensor<32x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %l = graph.einsum "mk,vk->mv" %x, %e : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %k = graph.top_k %l : (tensor<4x32xf32>) -> tensor<4x2xi32>
  return %l, %k : tensor<4x32xf32>, tensor<4x2xi32>
}
