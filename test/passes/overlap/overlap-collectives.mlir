// RUN: tessera-opt %s --overlap-collectives | FileCheck %s

module {
  dist.mesh @mesh [#dist.axis<"tensor" = 2 nvlink>]

  // What travels is made first; what can run beside it does.
  // CHECK-LABEL: func @backward
  // CHECK: graph.cluster contraction "dx"
  // CHECK: %[[T:.*]] = dist.all_reduce {{.*}} -> !dist.pending<tensor<512x512xf32>>
  // CHECK: graph.cluster contraction "dw"
  // CHECK: %[[S:.*]] = dist.wait %[[T]]
  // CHECK: graph.cluster row "next"(%[[S]])
  func.func @backward(%x: tensor<512x512xf32>, %g: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
    %w = graph.cluster contraction "dw" (%x, %g) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32> {
    ^bb0(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>):
      %o = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
      graph.yield %o : tensor<512x512xf32>
    }
    %d = graph.cluster contraction "dx" (%g, %x) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32> {
    ^bb0(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>):
      %o = graph.einsum "mk,kn->mn" %a, %b : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
      graph.yield %o : tensor<512x512xf32>
    }
    %s = dist.all_reduce sum %d over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64} : tensor<512x512xf32> -> tensor<512x512xf32>
    %n = graph.cluster row "next" (%s) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
    ^bb0(%a: tensor<512x512xf32>):
      %o = graph.neg %a : tensor<512x512xf32>
      graph.yield %o : tensor<512x512xf32>
    }
    return %n, %w : tensor<512x512xf32>, tensor<512x512xf32>
  }

  // Where nothing can run beside it a collective blocks. In loops, too.
  // CHECK-LABEL: func @turns
  // CHECK: graph.loop
  // CHECK:   %[[T:.*]] = dist.all_reduce {{.*}} -> !dist.pending<tensor<512x512xf32>>
  // CHECK:   graph.cluster row "beside"
  // CHECK:   dist.wait %[[T]]
  // CHECK:   graph.yield
  // CHECK: dist.all_reduce {{.*}} -> tensor<512x512xf32>
  // CHECK-NEXT: return
  func.func @turns(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
    %r = graph.loop 4 (%i, %acc = %x) : (tensor<512x512xf32>) attributes {dist.start = 0 : i64} {
      %s = dist.all_reduce sum %acc over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64} : tensor<512x512xf32> -> tensor<512x512xf32>
      %b = graph.cluster row "beside" (%x) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%a: tensor<512x512xf32>):
        %o = graph.neg %a : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      %n = graph.cluster elementwise "add" (%s, %b) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%a: tensor<512x512xf32>, %c: tensor<512x512xf32>):
        %o = graph.add %a, %c : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      graph.yield %n : tensor<512x512xf32>
    }
    %t = dist.all_reduce sum %r over @mesh [#dist.axis_ref<"tensor">] {dist.start = 1 : i64} : tensor<512x512xf32> -> tensor<512x512xf32>
    return %t : tensor<512x512xf32>
  }
}
