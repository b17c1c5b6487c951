// RUN: tessera-opt %s --split-input-file --differentiate | FileCheck %s

// One backward function for a block that is called twice. It is handed what the gradients read: arguments, the
// first value of the forward function, then the cotangent.

// CHECK-LABEL: func private @layer(
// CHECK-LABEL: func private @layer.forward
// CHECK-SAME: -> (tensor<4x8xf32>, tensor<4x8xf32>) attributes {graph.block}
// CHECK:      %[[Y:.*]] = graph.einsum "mk,kn->mn"
// CHECK:      %[[Z:.*]] = graph.gelu %[[Y]] erf
// CHECK:      return %[[Z]], %[[Y]]

// CHECK-LABEL: func private @layer.backward
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<8x8xf32>, %[[Y:.*]]: tensor<4x8xf32>, %[[DZ:.*]]: tensor<4x8xf32>)
// CHECK-SAME: -> (tensor<4x8xf32>, tensor<8x8xf32>)
// CHECK-NEXT: %[[DY:.*]] = graph.gelu_grad %[[Y]], %[[DZ]] erf
// CHECK-NEXT: %[[DX:.*]] = graph.einsum "mn,kn->mk" %[[DY]], %[[W]]
// CHECK-NEXT: %[[DW:.*]] = graph.einsum "mk,mn->kn" %[[X]], %[[DY]]
// CHECK-NEXT: return %[[DX]], %[[DW]]
func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> attributes {graph.block} {
  %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = graph.gelu %y erf : tensor<4x8xf32>
  return %z : tensor<4x8xf32>
}

// The loss stays; gradients of shared parameters are summed, later uses first. The gradient op of the head gives
// the loss as well, so that the forward op goes. Ids have no gradient.

// CHECK-LABEL: func @loss
// CHECK:      graph.linear_cross_entropy %

// CHECK-LABEL: func @gradients
// CHECK-SAME: %[[E:arg0]]: tensor<16x8xf32>
// CHECK-SAME: %[[W:arg1]]: tensor<8x8xf32>
// CHECK-SAME: %[[IDS:arg2]]: tensor<4xi32>
// CHECK-SAME: %[[CT:arg4]]: tensor<f32> {graph.input = "cotangent"}
// CHECK-SAME: -> (tensor<f32>, tensor<16x8xf32>, tensor<8x8xf32>) attributes {graph.program = #graph.program<gradients>}
// CHECK-NEXT: %[[X0:.*]] = graph.embedding %[[E]], %[[IDS]]
// CHECK-NEXT: %[[X1:.*]]:2 = call @layer.forward(%[[X0]], %[[W]])
// CHECK-NEXT: %[[X2:.*]]:2 = call @layer.forward(%[[X1]]#0, %[[W]]) {graph.layer = #graph.layer<1>}
// CHECK-NEXT: %[[L:.*]], %[[DX:.*]], %[[DE:.*]] = graph.linear_cross_entropy_grad %[[X2]]#0, %[[E]], %arg3, %[[CT]]
// CHECK-NEXT: %[[B2:.*]]:2 = call @layer.backward(%[[X1]]#0, %[[W]], %[[X2]]#1, %[[DX]]) {graph.layer = #graph.layer<1, backward>}
// CHECK-NEXT: %[[B1:.*]]:2 = call @layer.backward(%[[X0]], %[[W]], %[[X1]]#1, %[[B2]]#0)
// CHECK-NEXT: %[[DW:.*]] = graph.add %[[B2]]#1, %[[B1]]#1
// CHECK-NEXT: %[[ZERO:.*]] = graph.constant
// CHECK-NEXT: %[[ROWS:.*]] = graph.scatter_add %[[B1]]#0 at %[[IDS]] onto %[[ZERO]]
// CHECK-NEXT: %[[SUM:.*]] = graph.add %[[DE]], %[[ROWS]]
// CHECK-NEXT: return %[[L]], %[[SUM]], %[[DW]]
func.func @loss(%e: tensor<16x8xf32> {graph.state = "e", graph.role = #graph<role parameter>},
                %w: tensor<8x8xf32> {graph.state = "w", graph.role = #graph<role parameter>},
                %tokens: tensor<4xi32> {graph.input = "tokens"}, %targets: tensor<4xi32> {graph.input = "targets"}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %x0 = graph.embedding %e, %tokens : (tensor<16x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %x1 = call @layer(%x0, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %x2 = call @layer(%x1, %w) {graph.layer = #graph.layer<1>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %l = graph.linear_cross_entropy %x2, %e, %targets : tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32> -> tensor<f32>
  return %l : tensor<f32>
}

// -----

// What no parameter reaches has no gradient: the block that only sees constants is called as it is, and of the
// other only the argument that needs one is differentiated. A parameter that the loss does not use has gradient 0.

// CHECK-LABEL: func private @fixed(
// CHECK-NOT:   func private @fixed.
// CHECK-LABEL: func private @scale.backward
// CHECK-SAME:  (%[[A:.*]]: tensor<4xf32>, %[[CT:.*]]: tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:  %[[D:.*]] = graph.mul %[[CT]], %[[A]]
// CHECK-NEXT:  return %[[D]]
func.func private @fixed(%x: tensor<4xf32>) -> tensor<4xf32> attributes {graph.block} {
  %y = graph.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @scale(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> attributes {graph.block} {
  %y = graph.mul %a, %b : tensor<4xf32>
  return %y : tensor<4xf32>
}
// CHECK-LABEL: func @gradients
// CHECK:       %[[F:.*]] = call @fixed
// CHECK:       call @scale.forward(%[[F]], %arg0)
// CHECK:       %[[B:.*]] = call @scale.backward(%[[F]],
// CHECK:       %[[ZERO:.*]] = graph.constant dense<0.0{{.*}}> : tensor<2xf32>
// CHECK:       return %{{.*}}, %[[B]], %[[ZERO]]
func.func @loss(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>},
                %unused: tensor<2xf32> {graph.state = "unused", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %c = graph.constant dense<2.0> : tensor<4xf32>
  %f = call @fixed(%c) : (tensor<4xf32>) -> tensor<4xf32>
  %s = call @scale(%f, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %l = graph.reduce %s sum dims [0] : tensor<4xf32> -> tensor<f32>
  return %l : tensor<f32>
}

// -----

// Blocks may call blocks. A result without influence on the loss gets cotangent 0.

// CHECK-LABEL: func private @inner.forward
// CHECK-LABEL: func private @outer.forward
// CHECK:       call @inner.forward
// CHECK-LABEL: func private @outer.backward
// CHECK:       call @inner.backward
func.func private @inner(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {graph.block} {
  %y = graph.exp %x : tensor<4xf32>
  %z = graph.sin %x : tensor<4xf32>
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}
func.func private @outer(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {graph.block} {
  %y:2 = call @inner(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func @gradients
// CHECK:       %[[G:.*]] = graph.broadcast
// CHECK:       %[[ZERO:.*]] = graph.constant dense<0.0
// CHECK:       call @outer.backward({{.*}}, %[[G]], %[[ZERO]])
func.func @loss(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %y:2 = call @outer(%w) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %l = graph.reduce %y#0 sum dims [0] : tensor<4xf32> -> tensor<f32>
  return %l : tensor<f32>
}

// -----

// What is marked is a constant: the gradient of x * max(x, 1) is max(x, 1).

// CHECK-LABEL: func @gradients
// CHECK:       %[[M:.*]] = graph.max %arg0, %{{.*}} {graph.stop_gradient}
// CHECK:       %[[G:.*]] = graph.broadcast
// CHECK-NEXT:  %[[D:.*]] = graph.mul {{(%\[\[G\]\], %\[\[M\]\]|%.*, %.*)}}
// CHECK-NEXT:  return %{{.*}}, %[[D]]
func.func @loss(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %one = graph.constant dense<1.0> : tensor<4xf32>
  %m = graph.max %w, %one {graph.stop_gradient} : tensor<4xf32>
  %y = graph.mul %w, %m : tensor<4xf32>
  %l = graph.reduce %y sum dims [0] : tensor<4xf32> -> tensor<f32>
  return %l : tensor<f32>
}
