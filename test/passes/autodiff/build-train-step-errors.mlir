// RUN: tessera-opt %s --split-input-file --verify-diagnostics --build-train-step=accumulate=0
// One case for each thing that build-train-step refuses.

// expected-error @+1 {{has no program 'gradients' with a body; differentiate makes it}}
module {
}

// -----

// expected-error @+1 {{has no program 'init' with a body; importing a model makes it}}
module {
  func.func @gradients() attributes {graph.program = #graph.program<gradients>} {
    return
  }
}

// -----

// expected-error @+1 {{has no argument with graph.input = "step"}}
func.func @gradients(%t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"}) attributes {graph.program = #graph.program<gradients>} {
  return
}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}

// -----

// expected-error @+1 {{cannot accumulate 0 microbatches; the least is 1}}
func.func @gradients(%t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"}) attributes {graph.program = #graph.program<gradients>} {
  return
}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
