// RUN: tessera-opt %s --order-collectives --bucket-collectives --overlap-collectives --verify-overlap | FileCheck %s

// Parameters that are cut over data are gathered a layer ahead: while the first
// product runs, the second weight is on its way, and the third not yet, whose
// bytes would be more than a weight in use.
module {
  dist.mesh @mesh [#dist.axis<"data" = 2 memory>]
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
}
