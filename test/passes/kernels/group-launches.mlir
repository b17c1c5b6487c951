// RUN: tessera-opt %s --group-launches | FileCheck %s

// Updates of two parameters are one launch, with two instances.

// CHECK-LABEL: func @updates(
// CHECK-NEXT:  %[[U:.*]]:2 = tile.launch @sgd(%arg0, %arg1, %arg2, %arg3) blocks [1, 2] sizes [32, 20000] reuse [0, 0]
// CHECK-NEXT:  return %[[U]]#0, %[[U]]#1
func.func @updates(%p: tensor<32xf32>, %g: tensor<32xf32>, %q: tensor<20000xf32>, %h: tensor<20000xf32>) -> (tensor<32xf32>, tensor<20000xf32>) {
  %a = tile.launch @sgd(%p, %g) blocks [1] sizes [32] reuse [0, 0] : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  %b = tile.launch @sgd(%q, %h) blocks [2] sizes [20000] reuse [0, 0] : (tensor<20000xf32>, tensor<20000xf32>) -> tensor<20000xf32>
  return %a, %b : tensor<32xf32>, tensor<20000xf32>
}

// A chain stays a chain; what is independent of it joins its first link.

// CHECK-LABEL: func @chain(
// CHECK:       %[[A:.*]]:2 = tile.launch @f(%arg0, %arg1) blocks [1, 1]
// CHECK:       %[[B:.*]] = tile.launch @f(%[[A]]#0) blocks [1]
// CHECK:       return %[[B]], %[[A]]#1
func.func @chain(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %a = tile.launch @f(%x) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %b = tile.launch @f(%a) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %c = tile.launch @f(%y) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  return %b, %c : tensor<8xf32>, tensor<8xf32>
}

// Grouping one kernel may make another's launches depend on each other: that
// pair stays apart.

// CHECK-LABEL: func @crossed(
// CHECK:       %[[C:.*]] = tile.launch @g(%arg1)
// CHECK:       %[[A:.*]]:2 = tile.launch @f(%arg0, %[[C]])
// CHECK:       %[[B:.*]] = tile.launch @g(%[[A]]#0)
// CHECK:       return %[[B]], %[[A]]#1
func.func @crossed(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %a = tile.launch @f(%x) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %b = tile.launch @g(%a) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %c = tile.launch @g(%y) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %d = tile.launch @f(%c) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  return %b, %d : tensor<8xf32>, tensor<8xf32>
}

// Not across the work that fills a step: tensors of all layers would be alive
// at once.

// CHECK-LABEL: func @layers(
// CHECK:       tile.launch @f(
// CHECK-NEXT:  tile.launch @matmul(
// CHECK-NEXT:  tile.launch @f(
func.func @layers(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %a = tile.launch @f(%x) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %m = tile.launch @matmul(%x) blocks [1] sizes [] : (tensor<8xf32>) -> tensor<8xf32>
  %b = tile.launch @f(%y) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  return %a, %m, %b : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// In loops too.

// CHECK-LABEL: func @inLoop(
// CHECK:       graph.loop
// CHECK:         tile.launch @f(%{{.*}}, %{{.*}}) blocks [1, 1]
func.func @inLoop(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %r:2 = graph.loop 2 (%i, %a = %x, %b = %y) : (tensor<8xf32>, tensor<8xf32>) {
    %c = tile.launch @f(%a) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
    %d = tile.launch @f(%b) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
    graph.yield %c, %d : tensor<8xf32>, tensor<8xf32>
  }
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}

// Across collectives, but not so that a later one would have to come before an
// earlier one: @f of the second needs its result, the first that of the other @f.

dist.mesh @mesh [#dist.axis<"data" = 2>]

// CHECK-LABEL: func @collectives(
// CHECK:       %[[A:.*]]:2 = tile.launch @f(%arg0, %arg1) blocks [1, 1]
// CHECK:       %[[R:.*]] = dist.all_reduce sum %[[A]]#0
// CHECK:       %[[S:.*]] = dist.all_reduce max %[[A]]#1
// CHECK:       %[[B:.*]] = tile.launch @f(%[[S]]) blocks [1]
// CHECK:       return %[[R]], %[[B]]
func.func @collectives(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %a = tile.launch @f(%x) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %r = dist.all_reduce sum %a over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  %b = tile.launch @f(%y) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %s = dist.all_reduce max %b over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  %c = tile.launch @f(%s) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  return %r, %c : tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func @ordered(
// CHECK:       %[[S:.*]] = dist.all_reduce sum %arg1
// CHECK:       %[[A:.*]] = tile.launch @f(%arg0) blocks [1]
// CHECK:       %[[R:.*]] = dist.all_reduce max %[[A]]
// CHECK:       %[[G:.*]] = dist.all_reduce sum %{{.*}} : tensor<4xf32>
// CHECK:       %[[B:.*]] = tile.launch @f(%[[G]]) blocks [1]
func.func @ordered(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<4xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<4xf32>) {
  %s = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  %a = tile.launch @f(%x) blocks [1] sizes [8] : (tensor<8xf32>) -> tensor<8xf32>
  %r = dist.all_reduce max %a over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  %g = dist.all_reduce sum %z over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
  %b = tile.launch @f(%g) blocks [1] sizes [4] : (tensor<4xf32>) -> tensor<4xf32>
  return %s, %r, %b : tensor<8xf32>, tensor<8xf32>, tensor<4xf32>
}
