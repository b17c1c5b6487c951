// RUN: tessera-opt %s --order-collectives --bucket-collectives --overlap-collectives --verify-overlap | FileCheck %s

// Parameters that are cut over data are gathered a layer ahead: while the first
// product runs, the second weight is on its way, and the third not yet, whose
// bytes would be more than a weight in use.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  // CHECK-LABEL: func @layers
  // CHECK: %[[TA:.*]] = dist.all_gather %arg1 {{.*}} -> !dist.pending
  // CHECK: %[[B:.*]] = dist.all_gather %arg2 {{.*}} -> !dist.pending
  // CHECK: %[[A:.*]] = dist.wait %[[TA]]
  // CHECK: graph.cluster contraction "one"(%arg0, %[[A]])
  // CHECK: %[[C:.*]] = dist.all_gather %arg3 {{.*}} -> !dist.pending
  // CHECK: %[[WB:.*]] = dist.wait %[[B]]
  // CHECK: graph.cluster contraction "two"(%{{.*}}, %[[WB]])
  // CHECK: %[[WC:.*]] = dist.wait %[[C]]
  // CHECK: graph.cluster contraction "three"(%{{.*}}, %[[WC]])
  func.func @layers(%x: tensor<1024x1024xf32>, %wa: tensor<512x1024xf32>, %wb: tensor<512x1024xf32>, %wc: tensor<512x1024xf32>) -> tensor<1024x1024xf32> {
    %a = dist.all_gather %wa dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<512x1024xf32> -> tensor<1024x1024xf32>
    %1 = graph.cluster contraction "one" (%x, %a) : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
    ^bb0(%l: tensor<1024x1024xf32>, %r: tensor<1024x1024xf32>):
      %o = graph.einsum "mk,kn->mn" %l, %r : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
      graph.yield %o : tensor<1024x1024xf32>
    }
    %b = dist.all_gather %wb dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<512x1024xf32> -> tensor<1024x1024xf32>
    %2 = graph.cluster contraction "two" (%1, %b) : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
    ^bb0(%l: tensor<1024x1024xf32>, %r: tensor<1024x1024xf32>):
      %o = graph.einsum "mk,kn->mn" %l, %r : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
      graph.yield %o : tensor<1024x1024xf32>
    }
    %c = dist.all_gather %wc dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<512x1024xf32> -> tensor<1024x1024xf32>
    %3 = graph.cluster contraction "three" (%2, %c) : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
    ^bb0(%l: tensor<1024x1024xf32>, %r: tensor<1024x1024xf32>):
      %o = graph.einsum "mk,kn->mn" %l, %r : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
      graph.yield %o : tensor<1024x1024xf32>
    }
    return %3 : tensor<1024x1024xf32>
  }

  // Shards that are converted and transposed before they are sent are parameters
  // too, and are not gathered earlier.
  // CHECK-LABEL: func @converted
  // CHECK: dist.all_gather {{.*}} -> !dist.pending
  // CHECK: dist.all_gather {{.*}} -> !dist.pending
  // CHECK-NOT: dist.all_gather
  // CHECK: graph.cluster contraction "product1"
  // CHECK: dist.all_gather {{.*}} -> !dist.pending
  // CHECK: graph.cluster contraction "product2"
  func.func @converted(%x: tensor<1024x1024xbf16>, %wa: tensor<1024x512xf32>, %wb: tensor<1024x512xf32>, %wc: tensor<1024x512xf32>) -> tensor<1024x1024xbf16> {
    %s1 = graph.cluster elementwise "convert" (%wa) : (tensor<1024x512xf32>) -> tensor<1024x512xbf16> {
    ^bb0(%l: tensor<1024x512xf32>):
      %o = graph.convert %l : tensor<1024x512xf32> -> tensor<1024x512xbf16>
      graph.yield %o : tensor<1024x512xbf16>
    }
    %t1 = graph.cluster elementwise "transpose" (%s1) : (tensor<1024x512xbf16>) -> tensor<512x1024xbf16> {
    ^bb0(%l: tensor<1024x512xbf16>):
      %o = graph.transpose %l [1, 0] : tensor<1024x512xbf16> -> tensor<512x1024xbf16>
      graph.yield %o : tensor<512x1024xbf16>
    }
    %g1 = dist.all_gather %t1 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<512x1024xbf16> -> tensor<1024x1024xbf16>
    %1 = graph.cluster contraction "product1" (%x, %g1) : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    ^bb0(%l: tensor<1024x1024xbf16>, %r: tensor<1024x1024xbf16>):
      %o = graph.einsum "mk,kn->mn" %l, %r : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
      graph.yield %o : tensor<1024x1024xbf16>
    }
    %s2 = graph.cluster elementwise "convert" (%wb) : (tensor<1024x512xf32>) -> tensor<1024x512xbf16> {
    ^bb0(%l: tensor<1024x512xf32>):
      %o = graph.convert %l : tensor<1024x512xf32> -> tensor<1024x512xbf16>
      graph.yield %o : tensor<1024x512xbf16>
    }
    %t2 = graph.cluster elementwise "transpose" (%s2) : (tensor<1024x512xbf16>) -> tensor<512x1024xbf16> {
    ^bb0(%l: tensor<1024x512xbf16>):
      %o = graph.transpose %l [1, 0] : tensor<1024x512xbf16> -> tensor<512x1024xbf16>
      graph.yield %o : tensor<512x1024xbf16>
    }
    %g2 = dist.all_gather %t2 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<512x1024xbf16> -> tensor<1024x1024xbf16>
    %2 = graph.cluster contraction "product2" (%1, %g2) : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    ^bb0(%l: tensor<1024x1024xbf16>, %r: tensor<1024x1024xbf16>):
      %o = graph.einsum "mk,kn->mn" %l, %r : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
      graph.yield %o : tensor<1024x1024xbf16>
    }
    %s3 = graph.cluster elementwise "convert" (%wc) : (tensor<1024x512xf32>) -> tensor<1024x512xbf16> {
    ^bb0(%l: tensor<1024x512xf32>):
      %o = graph.convert %l : tensor<1024x512xf32> -> tensor<1024x512xbf16>
      graph.yield %o : tensor<1024x512xbf16>
    }
    %t3 = graph.cluster elementwise "transpose" (%s3) : (tensor<1024x512xbf16>) -> tensor<512x1024xbf16> {
    ^bb0(%l: tensor<1024x512xbf16>):
      %o = graph.transpose %l [1, 0] : tensor<1024x512xbf16> -> tensor<512x1024xbf16>
      graph.yield %o : tensor<512x1024xbf16>
    }
    %g3 = dist.all_gather %t3 dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<512x1024xbf16> -> tensor<1024x1024xbf16>
    %3 = graph.cluster contraction "product3" (%2, %g3) : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    ^bb0(%l: tensor<1024x1024xbf16>, %r: tensor<1024x1024xbf16>):
      %o = graph.einsum "mk,kn->mn" %l, %r : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
      graph.yield %o : tensor<1024x1024xbf16>
    }
    return %3 : tensor<1024x1024xbf16>
  }
}
