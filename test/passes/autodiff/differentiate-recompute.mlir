// RUN: tessera-opt %s --differentiate=recompute=none | FileCheck %s --check-prefixes=CHECK,NONE
// RUN: tessera-opt %s --differentiate=recompute=selective | FileCheck %s --check-prefixes=CHECK,SELECTIVE
// RUN: tessera-opt %s --differentiate=recompute=full | FileCheck %s --check-prefixes=CHECK,FULL

// What a block saves besides its result. none: the normalized input, the hidden layer before and after its
// activation; views and the mask are free. selective: only the hidden layer with its bias, which costs no more than
// the contraction itself. full: nothing; the arguments are there anyway.

// CHECK-LABEL: func private @layer.forward
// NONE-SAME:      -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x16xf32>, tensor<4x16xf32>)
// SELECTIVE-SAME: -> (tensor<4x8xf32>, tensor<4x16xf32>)
// FULL-SAME:      -> tensor<4x8xf32>

// CHECK-LABEL:    func private @layer.backward
// NONE-NOT:       graph.rms_norm
// NONE-NOT:       graph.gelu %
// NONE:           %[[MASK:.*]] = graph.compare
// NONE:           graph.broadcast %[[MASK]]

// SELECTIVE:      graph.rms_norm
// SELECTIVE-NOT:  graph.einsum "mk,kn->mn"
// SELECTIVE:      graph.gelu
// SELECTIVE-NOT:  graph.einsum "mk,kn->mn"

// FULL:           graph.rms_norm
// FULL:           graph.einsum "mk,kn->mn"
// FULL:           graph.gelu
// The last contraction is not needed.
// FULL-NOT:       graph.einsum "mk,kn->mn"

// CHECK:          graph.gelu_grad
// CHECK:          return
func.func private @layer(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %w1: tensor<8x16xf32>, %b: tensor<16xf32>, %w2: tensor<16x8xf32>) -> tensor<4x8xf32> attributes {graph.block} {
  %n = graph.rms_norm %x, %g eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>
  %h = graph.einsum "mk,kn->mn" %n, %w1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %bb = graph.broadcast %b dims [1] : tensor<16xf32> -> tensor<4x16xf32>
  %hb = graph.add %h, %bb : tensor<4x16xf32>
  %a = graph.gelu %hb tanh : tensor<4x16xf32>
  %i = graph.iota dim 0 : tensor<16xi32>
  %c = graph.constant dense<7> : tensor<16xi32>
  %m = graph.compare %i lt %c : tensor<16xi32> -> tensor<16xi1>
  %mm = graph.broadcast %m dims [1] : tensor<16xi1> -> tensor<4x16xi1>
  %z = graph.constant dense<0.0> : tensor<4x16xf32>
  %s = graph.select %mm, %a, %z : tensor<4x16xi1>, tensor<4x16xf32>
  %o = graph.einsum "mk,kn->mn" %s, %w2 : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %r = graph.add %x, %o : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
func.func @loss(%x: tensor<4x8xf32> {graph.state = "x", graph.role = #graph<role parameter>}, %g: tensor<8xf32> {graph.state = "g", graph.role = #graph<role parameter>},
                %w1: tensor<8x16xf32> {graph.state = "w1", graph.role = #graph<role parameter>}, %b: tensor<16xf32> {graph.state = "b", graph.role = #graph<role parameter>},
                %w2: tensor<16x8xf32> {graph.state = "w2", graph.role = #graph<role parameter>}) -> tensor<f32> attributes {graph.program = #graph.program<loss>} {
  %y = call @layer(%x, %g, %w1, %b, %w2) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %l = graph.reduce %y sum dims [0, 1] : tensor<4x8xf32> -> tensor<f32>
  return %l : tensor<f32>
}
