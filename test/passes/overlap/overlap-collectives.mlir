// RUN: tessera-opt %s --overlap-collectives | FileCheck %s

module {
  dist.mesh @mesh [#dist.axis<"tensor" = 2>]

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

  // What the next iteration finds in place of a value is received after the
  // readers of that value.
  // CHECK-LABEL: func @received
  // CHECK: graph.loop 4 (%{{.*}}, %[[X:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
  // CHECK:   graph.cluster row "first"(%[[X]])
  // CHECK:   graph.cluster row "second"(%[[X]])
  // CHECK:   dist.permute {{.*}} -> !dist.pending
  // CHECK:   graph.cluster row "third"
  // CHECK:   dist.wait
  func.func @received(%x: tensor<512x512xf32>, %z: tensor<512x512xf32>) -> tensor<512x512xf32> {
    %r:2 = graph.loop 4 (%i, %old = %x, %acc = %z) : (tensor<512x512xf32>, tensor<512x512xf32>) attributes {dist.start = 0 : i64} {
      %a = graph.cluster row "first" (%old) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>):
        %o = graph.neg %u : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      %b = graph.cluster row "second" (%old) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>):
        %o = graph.neg %u : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      %n = dist.permute %z targets [1, -1] over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64} : tensor<512x512xf32> -> tensor<512x512xf32>
      %c = graph.cluster row "third" (%a, %b) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>, %v: tensor<512x512xf32>):
        %o = graph.add %u, %v : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      graph.yield %n, %c : tensor<512x512xf32>, tensor<512x512xf32>
    }
    return %r#1 : tensor<512x512xf32>
  }

  // Two trips are in flight: what is received has the place of the older value.
  // CHECK-LABEL: func @flight
  // CHECK: graph.loop 4
  // CHECK:   graph.cluster row "first"
  // CHECK:   dist.permute {{.*}} -> !dist.pending
  // CHECK:   graph.cluster row "second"
  func.func @flight(%x: tensor<512x512xf32>, %z: tensor<512x512xf32>) -> tensor<512x512xf32> {
    %r:3 = graph.loop 4 (%i, %old = %x, %later = %x, %acc = %z) : (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) attributes {dist.start = 0 : i64, graph.in_flight = 2 : i64} {
      %a = graph.cluster row "first" (%old) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>):
        %o = graph.neg %u : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      %n = dist.permute %z targets [1, -1] over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64} : tensor<512x512xf32> -> tensor<512x512xf32>
      %c = graph.cluster row "second" (%a) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>):
        %o = graph.neg %u : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      graph.yield %later, %n, %c : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
    }
    return %r#2 : tensor<512x512xf32>
  }

  // With room for three the place is free.
  // CHECK-LABEL: func @free
  // CHECK: graph.loop 4
  // CHECK:   dist.permute {{.*}} -> !dist.pending
  // CHECK:   graph.cluster row "first"
  func.func @free(%x: tensor<512x512xf32>, %z: tensor<512x512xf32>) -> tensor<512x512xf32> {
    %r:3 = graph.loop 4 (%i, %old = %x, %later = %x, %acc = %z) : (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) attributes {dist.start = 0 : i64, graph.in_flight = 3 : i64} {
      %a = graph.cluster row "first" (%old) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>):
        %o = graph.neg %u : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      %n = dist.permute %z targets [1, -1] over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64} : tensor<512x512xf32> -> tensor<512x512xf32>
      %c = graph.cluster row "second" (%a) : (tensor<512x512xf32>) -> tensor<512x512xf32> {
      ^bb0(%u: tensor<512x512xf32>):
        %o = graph.neg %u : tensor<512x512xf32>
        graph.yield %o : tensor<512x512xf32>
      }
      graph.yield %later, %n, %c : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
    }
    return %r#2 : tensor<512x512xf32>
  }
}
