// RUN: tessera-opt %s --apply-precision="compute=bf16 round-rows=true" --canonicalize | FileCheck %s
// RUN: tessera-opt %s --apply-precision=compute=bf16 --canonicalize | FileCheck %s --check-prefix=SUM

// Inference has tables in bf16: rows that are added are rounded before, and the sum is. Otherwise only the sum is.

// CHECK-LABEL: func @loss
// CHECK:       %[[E:.*]] = graph.embedding %arg0, %arg2
// CHECK-NEXT:  %[[E16:.*]] = graph.convert %[[E]] : tensor<4x8xf32> -> tensor<4x8xbf16>
// CHECK-NEXT:  %[[P:.*]] = graph.embedding %arg1, %arg2
// CHECK-NEXT:  %[[P16:.*]] = graph.convert %[[P]] : tensor<4x8xf32> -> tensor<4x8xbf16>
// CHECK-DAG:   %[[EW:.*]] = graph.convert %[[E16]]
// CHECK-DAG:   %[[PW:.*]] = graph.convert %[[P16]]
// CHECK:       graph.add %[[EW]], %[[PW]] : tensor<4x8xf32>
// SUM-LABEL:   func @loss
// SUM:         %[[E:.*]] = graph.embedding %arg0, %arg2
// SUM-NEXT:    %[[P:.*]] = graph.embedding %arg1, %arg2
// SUM-NEXT:    graph.add %[[E]], %[[P]] : tensor<4x8xf32>
func.func @loss(%e: tensor<32x8xf32> {graph.state = "e", graph.role = #graph<role parameter>}, %p: tensor<16x8xf32> {graph.state = "p", graph.role = #graph<role parameter>}, %t: tensor<4xi32>) -> tensor<4x32xf32> {
  %x = graph.embedding %e, %t : (tensor<32x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %y = graph.embedding %p, %t : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %s = graph.add %x, %y : tensor<4x8xf32>
  %l = graph.einsum "mk,vk->mv" %s, %e : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  return %l : tensor<4x32xf32>
}
