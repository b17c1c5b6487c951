// RUN: tessera-opt %s --pad-rows="targets=cuda:sm_90a" | FileCheck %s
// RUN: tessera-opt %s --pad-rows="targets=cuda:sm_90a" --plan-kernels="targets=cuda:sm_90a" | FileCheck %s --check-prefix=PLAN
// RUN: tessera-opt %s --plan-kernels="targets=cuda:sm_90a" | FileCheck %s --check-prefix=UNPADDED
// RUN: tessera-opt %s --pad-rows="targets=cuda:sm_80" --emit-kernels="targets=cuda:sm_80" --canonicalize | FileCheck %s --check-prefix=KERNEL
// RUN: tessera-opt %s --pad-rows="targets=cpu:avx2" | FileCheck %s --check-prefix=CPU

// CPU-NOT: graph.pad
// CPU-NOT: graph.slice

// Without padding no tensor map describes %p, and no wgmma reads it.
// UNPADDED-LABEL: func.func @head
// UNPADDED: contraction_plan<warpgroup
// PLAN-LABEL: func.func @head
// PLAN: contraction_plan<warp_specialized

// 501 elements of two bytes become 512, a multiple of 32 bytes. The kernel
// writes 501 of each row and reads as many.
// CHECK-LABEL: func.func @head
// CHECK: graph.cluster row "softmax"(%{{.*}}) : (tensor<512x501xf32>) -> tensor<512x512xbf16>
// CHECK: %[[PAD:.*]] = graph.pad %{{.*}} low [0, 0] {tile.unread} : tensor<512x501xbf16> -> tensor<512x512xbf16>
// CHECK-NEXT: graph.yield %[[PAD]]
// CHECK: graph.cluster contraction "linear"(%{{.*}}) : (tensor<512x512xbf16>, tensor<501x768xbf16>) -> tensor<512x768xbf16>
// CHECK-NEXT: ^bb0(%[[P:.*]]: tensor<512x512xbf16>, %[[W:.*]]: tensor<501x768xbf16>):
// CHECK-NEXT: %[[ROWS:.*]] = graph.slice %[[P]] [0, 0] : tensor<512x512xbf16> -> tensor<512x501xbf16>
// CHECK-NEXT: graph.einsum "tv,vk->tk" %[[ROWS]], %[[W]]
// KERNEL: tile.kernel @softmax
// KERNEL: memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [512, 501], strides: [512, 1] : memref<262144xbf16>
// KERNEL: tile.kernel @linear
// KERNEL: memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [512, 501], strides: [512, 1] : memref<262144xbf16>
func.func @head(%x: tensor<512x501xf32>, %w: tensor<501x768xbf16>) -> tensor<512x768xbf16> {
  %p = graph.cluster row "softmax" (%x) : (tensor<512x501xf32>) -> tensor<512x501xbf16> {
  ^bb0(%a: tensor<512x501xf32>):
    %m = graph.reduce %a max dims [1] : tensor<512x501xf32> -> tensor<512xf32>
    %s = graph.broadcast %m dims [0] : tensor<512xf32> -> tensor<512x501xf32>
    %d = graph.sub %a, %s : tensor<512x501xf32>
    %c = graph.convert %d : tensor<512x501xf32> -> tensor<512x501xbf16>
    graph.yield %c : tensor<512x501xbf16>
  }
  %y = graph.cluster contraction "linear" (%p, %w) : (tensor<512x501xbf16>, tensor<501x768xbf16>) -> tensor<512x768xbf16> {
  ^bb0(%a: tensor<512x501xbf16>, %b: tensor<501x768xbf16>):
    %r = graph.einsum "tv,vk->tk" %a, %b : (tensor<512x501xbf16>, tensor<501x768xbf16>) -> tensor<512x768xbf16>
    graph.yield %r : tensor<512x768xbf16>
  }
  return %y : tensor<512x768xbf16>
}

// Results of a function and what elementwise kernels read stay dense, and so do
// short rows.
// CHECK-LABEL: func.func @dense
// CHECK-NOT: graph.pad
// CHECK: return
func.func @dense(%x: tensor<64x501xf32>, %z: tensor<64x33xf32>) -> (tensor<64x501xf32>, tensor<64x501xf32>, tensor<64xf32>) {
  %p = graph.cluster row "result" (%x) : (tensor<64x501xf32>) -> tensor<64x501xf32> {
  ^bb0(%a: tensor<64x501xf32>):
    %m = graph.reduce %a max dims [1] : tensor<64x501xf32> -> tensor<64xf32>
    %s = graph.broadcast %m dims [0] : tensor<64xf32> -> tensor<64x501xf32>
    %d = graph.sub %a, %s : tensor<64x501xf32>
    graph.yield %d : tensor<64x501xf32>
  }
  %q = graph.cluster row "read_flat" (%p) : (tensor<64x501xf32>) -> tensor<64x501xf32> {
  ^bb0(%a: tensor<64x501xf32>):
    %m = graph.reduce %a sum dims [1] : tensor<64x501xf32> -> tensor<64xf32>
    %s = graph.broadcast %m dims [0] : tensor<64xf32> -> tensor<64x501xf32>
    %d = graph.sub %a, %s : tensor<64x501xf32>
    graph.yield %d : tensor<64x501xf32>
  }
  %e = graph.cluster elementwise "exp" (%q) : (tensor<64x501xf32>) -> tensor<64x501xf32> {
  ^bb0(%a: tensor<64x501xf32>):
    %d = graph.exp %a : tensor<64x501xf32>
    graph.yield %d : tensor<64x501xf32>
  }
  %t = graph.cluster row "short" (%z) : (tensor<64x33xf32>) -> tensor<64x33xf32> {
  ^bb0(%a: tensor<64x33xf32>):
    %m = graph.reduce %a max dims [1] : tensor<64x33xf32> -> tensor<64xf32>
    %s = graph.broadcast %m dims [0] : tensor<64xf32> -> tensor<64x33xf32>
    %d = graph.sub %a, %s : tensor<64x33xf32>
    graph.yield %d : tensor<64x33xf32>
  }
  %u = graph.cluster row "sum" (%t) : (tensor<64x33xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64x33xf32>):
    %m = graph.reduce %a sum dims [1] : tensor<64x33xf32> -> tensor<64xf32>
    graph.yield %m : tensor<64xf32>
  }
  return %p, %e, %u : tensor<64x501xf32>, tensor<64x501xf32>, tensor<64xf32>
}
