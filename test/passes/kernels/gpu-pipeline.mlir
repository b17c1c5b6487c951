// RUN: tessera-opt %s --emit-kernels="targets=cuda:sm_90a" --canonicalize --cse | FileCheck %s

// The last of the sixteen products is outside of the loop, and one wait follows
// it: ptxas takes a sum for complete at the first wait after its product.
// CHECK-LABEL: tile.kernel @linear
// CHECK: consumers
// CHECK: %[[SUM:.*]] = scf.for %{{.*}} = %c0 to %c15
// CHECK:   tile.await
// CHECK:   tile.mma_async
// CHECK:   tile.release
// CHECK: }
// CHECK: tile.await
// CHECK-NEXT: tile.load
// CHECK: tile.mma_async {{.*}}, %[[SUM]]
// CHECK-NEXT: tile.mma_wait
// CHECK-NOT: tile.release
// CHECK: tile.return
func.func @product(%x: tensor<512x1024xbf16>, %w: tensor<1024x256xbf16>) -> tensor<512x256xbf16> {
  %y = graph.cluster contraction "linear" (%x, %w) : (tensor<512x1024xbf16>, tensor<1024x256xbf16>) -> tensor<512x256xbf16> {
  ^bb0(%a: tensor<512x1024xbf16>, %b: tensor<1024x256xbf16>):
    %p = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x1024xbf16>, tensor<1024x256xbf16>) -> tensor<512x256xbf16>
    graph.yield %p : tensor<512x256xbf16>
  }
  return %y : tensor<512x256xbf16>
}

// Persistent blocks release both stages, which the producer fills for the next
// tile.
// CHECK-LABEL: tile.kernel @persistent
// CHECK: consumers
// CHECK: scf.for
// CHECK:   scf.for
// CHECK:   tile.mma_wait
// CHECK:   tile.release last
func.func @tiles(%x: tensor<8192x1024xbf16>, %w: tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16> {
  %y = graph.cluster contraction "persistent" (%x, %w) : (tensor<8192x1024xbf16>, tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16> {
  ^bb0(%a: tensor<8192x1024xbf16>, %b: tensor<1024x8192xbf16>):
    %p = graph.einsum "mk,kn->mn" %a, %b : (tensor<8192x1024xbf16>, tensor<1024x8192xbf16>) -> tensor<8192x8192xbf16>
    graph.yield %p : tensor<8192x8192xbf16>
  }
  return %y : tensor<8192x8192xbf16>
}
