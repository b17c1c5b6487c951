// RUN: tessera-opt %s --emit-kernels=targets=cuda:sm_90a --canonicalize --cse | FileCheck %s

// A producer brings queries once, then keys and values in turn. Consumers start
// the next scores and the output of the last weights in turn, compute the
// softmax while the latter goes on, and give stages back as products are done.

// CHECK-LABEL: tile.kernel @attention
// CHECK-DAG:     %[[QUERIES:.*]] = tile.alloc : memref<1x128x128xbf16, #tile.shared<swizzled>>
// CHECK-DAG:     %[[Q:.*]] = tile.ring : <1 stages, 2 consumers>
// CHECK:         %[[K:.*]] = tile.ring : <2 stages, 2 consumers>
// CHECK:         %[[V:.*]] = tile.ring : <2 stages, 2 consumers>
// CHECK:         tile.warp_specialize registers [24, 240] producer {
// CHECK:           tile.acquire %[[Q]] bytes 32768
// CHECK:           tile.bulk_copy %{{.*}} along [1, 3] to %[[QUERIES]]
// CHECK:           scf.for
// CHECK:             tile.acquire %[[K]] bytes 32768
// CHECK:             tile.bulk_copy
// CHECK:             tile.acquire %[[V]] bytes 32768
// CHECK:             tile.bulk_copy
// CHECK:         } consumers {
// CHECK:           tile.await %[[Q]]
// CHECK:           tile.await %[[K]]
// CHECK:           tile.mma_async
// CHECK:           tile.mma_wait
// CHECK:           tile.release last %[[K]]
// CHECK:           scf.for
// CHECK:             tile.ping_pong take
// CHECK:             tile.await %[[K]]
// CHECK:             %[[SCORES:.*]] = tile.mma_async
// CHECK:             tile.await %[[V]]
// CHECK:             %[[OUTPUT:.*]] = tile.mma_async
// CHECK:             tile.ping_pong pass
// CHECK:             tile.mma_wait %[[SCORES]] pending 1
// CHECK:             tile.release last %[[K]]
// CHECK:             math.exp2
// CHECK:             tile.reduce sum
// CHECK:             tile.mma_wait %[[OUTPUT]] :
// CHECK:             tile.release last %[[V]]
// CHECK:             arith.truncf
// CHECK:           tile.await %[[V]]
// CHECK:           tile.mma_async
// CHECK:           tile.mma_wait
// CHECK-COUNT-2:   tile.store
func.func @main(%q: tensor<2x300x4x128xbf16>, %k: tensor<2x300x2x128xbf16>, %v: tensor<2x300x2x128xbf16>) -> (tensor<2x300x4x128xbf16>, tensor<2x4x300xf32>) {
  %y:2 = graph.cluster attention "attention"(%q, %k, %v) : (tensor<2x300x4x128xbf16>, tensor<2x300x2x128xbf16>, tensor<2x300x2x128xbf16>) -> (tensor<2x300x4x128xbf16>, tensor<2x4x300xf32>) {
  ^bb0(%a: tensor<2x300x4x128xbf16>, %b: tensor<2x300x2x128xbf16>, %c: tensor<2x300x2x128xbf16>):
    %o:2 = graph.attention %a, %b, %c scale 0.1 {causal} : tensor<2x300x4x128xbf16>, tensor<2x300x2x128xbf16>, tensor<2x300x2x128xbf16> -> tensor<2x300x4x128xbf16>, tensor<2x4x300xf32>
    graph.yield %o#0, %o#1 : tensor<2x300x4x128xbf16>, tensor<2x4x300xf32>
  }
  return %y#0, %y#1 : tensor<2x300x4x128xbf16>, tensor<2x4x300xf32>
}

// Rows of 20 elements are no multiples of 16 bytes: all threads copy them.

// CHECK-LABEL: tile.kernel @attention_1
// CHECK-NOT:     tile.warp_specialize
// CHECK:         tile.copy
// CHECK:         tile.mma
// CHECK-NOT:     tile.warp_specialize
// CHECK:         tile.return
func.func @heads_of_20(%q: tensor<2x300x4x20xbf16>, %k: tensor<2x300x2x20xbf16>, %v: tensor<2x300x2x20xbf16>) -> (tensor<2x300x4x20xbf16>, tensor<2x4x300xf32>) {
  %y:2 = graph.cluster attention "attention"(%q, %k, %v) : (tensor<2x300x4x20xbf16>, tensor<2x300x2x20xbf16>, tensor<2x300x2x20xbf16>) -> (tensor<2x300x4x20xbf16>, tensor<2x4x300xf32>) {
  ^bb0(%a: tensor<2x300x4x20xbf16>, %b: tensor<2x300x2x20xbf16>, %c: tensor<2x300x2x20xbf16>):
    %o:2 = graph.attention %a, %b, %c scale 0.1 {causal} : tensor<2x300x4x20xbf16>, tensor<2x300x2x20xbf16>, tensor<2x300x2x20xbf16> -> tensor<2x300x4x20xbf16>, tensor<2x4x300xf32>
    graph.yield %o#0, %o#1 : tensor<2x300x4x20xbf16>, tensor<2x4x300xf32>
  }
  return %y#0, %y#1 : tensor<2x300x4x20xbf16>, tensor<2x4x300xf32>
}

// 64 heads read 64 MB of keys and values: 32 of them have all of their blocks
// before the others, so that the L2 cache keeps what those share.

// CHECK-LABEL: tile.kernel @attention_2(%{{.*}}: index
// CHECK:         %[[MEMBER:.*]] = arith.remui %{{.*}}, %c32
// CHECK:         %[[REST:.*]] = arith.divui %{{.*}}, %c32
// CHECK:         %[[TILE:.*]] = arith.remui %[[REST]], %c64
// CHECK:         %[[GROUP:.*]] = arith.divui %[[REST]], %c64
// CHECK:         %[[FIRST:.*]] = arith.muli %[[GROUP]], %c32
// CHECK:         arith.addi %[[FIRST]], %[[MEMBER]]
func.func @long(%q: tensor<1x8192x64x128xbf16>, %k: tensor<1x8192x16x128xbf16>, %v: tensor<1x8192x16x128xbf16>) -> tensor<1x8192x64x128xbf16> {
  %y = graph.cluster attention "attention"(%q, %k, %v) : (tensor<1x8192x64x128xbf16>, tensor<1x8192x16x128xbf16>, tensor<1x8192x16x128xbf16>) -> tensor<1x8192x64x128xbf16> {
  ^bb0(%a: tensor<1x8192x64x128xbf16>, %b: tensor<1x8192x16x128xbf16>, %c: tensor<1x8192x16x128xbf16>):
    %o:2 = graph.attention %a, %b, %c scale 0.1 {causal} : tensor<1x8192x64x128xbf16>, tensor<1x8192x16x128xbf16>, tensor<1x8192x16x128xbf16> -> tensor<1x8192x64x128xbf16>, tensor<1x64x8192xf32>
    graph.yield %o#0 : tensor<1x8192x64x128xbf16>
  }
  return %y : tensor<1x8192x64x128xbf16>
}
