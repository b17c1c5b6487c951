// RUN: tessera-opt %s --emit-kernels=targets=cpu:avx2 | FileCheck %s
// RUN: tessera-opt %s --plan-kernels=targets=cpu:avx2 | FileCheck %s --check-prefix=PLAN

// Launches of equal clusters are copies of the first one's, with inputs and the
// layer of their own. The order of the inputs is that of the body.

// CHECK-LABEL: func @copies(
// CHECK:  %[[A:.*]] = tile.launch @sub(%arg0, %arg1) blocks [1] sizes [32] {{.*}}{graph.layer = #graph.layer<0>}
// CHECK:  %[[B:.*]] = tile.launch @sub(%arg1, %[[A]]) blocks [1] sizes [32] {{.*}}{graph.layer = #graph.layer<1>}
// CHECK:  %[[C:.*]] = tile.launch @sub(%[[B]], %[[B]]) blocks [1] sizes [32] reuse [0, 0, 1, 0] :
// CHECK:  %[[D:.*]] = tile.launch @sub_1(%[[B]], %[[C]])
// CHECK:  return %[[D]]
func.func @copies(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %a = graph.cluster elementwise "sub"(%x, %y) attributes {graph.layer = #graph.layer<0>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>, %j: tensor<8x4xf32>):
    %r = graph.sub %i, %j : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  %b = graph.cluster elementwise "sub"(%y, %a) attributes {graph.layer = #graph.layer<1>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>, %j: tensor<8x4xf32>):
    %r = graph.sub %i, %j : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  %c = graph.cluster elementwise "sub"(%b, %b) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>, %j: tensor<8x4xf32>):
    %r = graph.sub %i, %j : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  %d = graph.cluster elementwise "sub"(%b, %c) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>, %j: tensor<8x4xf32>):
    %r = graph.sub %j, %i : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  return %d : tensor<8x4xf32>
}

// A cluster with one tensor twice is not copied: which input it was is unknown.

// CHECK-LABEL: func @twice(
// CHECK:  %[[A:.*]] = tile.launch @mul(%arg0, %arg0)
// CHECK:  %[[B:.*]] = tile.launch @mul(%arg0, %[[A]])
// CHECK:  return %[[B]]
func.func @twice(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %a = graph.cluster elementwise "mul"(%x, %x) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>, %j: tensor<8x4xf32>):
    %r = graph.mul %i, %j : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  %b = graph.cluster elementwise "mul"(%x, %a) : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%i: tensor<8x4xf32>, %j: tensor<8x4xf32>):
    %r = graph.mul %i, %j : tensor<8x4xf32>
    graph.yield %r : tensor<8x4xf32>
  }
  return %b : tensor<8x4xf32>
}

// Each equal contraction gets the plan, others their own.

// PLAN-LABEL: func @products(
// PLAN: graph.cluster contraction "linear"(%arg0, %arg1) attributes {tile.plan = [[PLAN:#tile.contraction_plan<.*>]]} : (tensor<64x256xf32>
// PLAN: graph.cluster contraction "linear"(%{{.*}}, %arg1) attributes {graph.layer = #graph.layer<1>, tile.plan = [[PLAN]]} :
func.func @products(%x: tensor<64x256xf32>, %w: tensor<256x256xf32>) -> tensor<64x256xf32> {
  %a = graph.cluster contraction "linear"(%x, %w) : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32> {
  ^bb0(%i: tensor<64x256xf32>, %j: tensor<256x256xf32>):
    %r = graph.einsum "bk,kn->bn" %i, %j : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
    graph.yield %r : tensor<64x256xf32>
  }
  %b = graph.cluster contraction "linear"(%a, %w) attributes {graph.layer = #graph.layer<1>} : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32> {
  ^bb0(%i: tensor<64x256xf32>, %j: tensor<256x256xf32>):
    %r = graph.einsum "bk,kn->bn" %i, %j : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
    graph.yield %r : tensor<64x256xf32>
  }
  return %b : tensor<64x256xf32>
}
