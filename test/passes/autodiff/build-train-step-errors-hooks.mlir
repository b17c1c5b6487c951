// RUN: tessera-opt %s --split-input-file --verify-diagnostics --build-train-step
// Functions around the gradients that do not fit them.

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
// expected-error @+1 {{has no body}}
func.func private @finish_step(tensor<4xf32> {graph.input = "sums"}) attributes {graph.program = #graph.program<finish_step>}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
// expected-error @+1 {{takes 'v' of type 'tensor<8xf32>', which is not a parameter of the loss}}
func.func @finish_step(%v: tensor<8xf32> {graph.state = "v", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<finish_step>} {
  return
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
// expected-error @+1 {{argument 0 is neither state nor input}}
func.func @finish_step(%v: tensor<8xf32>) attributes {graph.program = #graph.program<finish_step>} {
  return
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
// expected-error @+1 {{takes 'sums' of type 'tensor<3xf32>', which the loss does not give}}
func.func @finish_step(%v: tensor<3xf32> {graph.input = "sums"}) attributes {graph.program = #graph.program<finish_step>} {
  return
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
// expected-error @+1 {{takes 'loads', which is known only to the loss}}
func.func @prepare_step(%v: tensor<4xf32> {graph.input = "loads"}) attributes {graph.program = #graph.program<prepare_step>} {
  return
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
// expected-error @+1 {{result 0 of type 'tensor<2x4xi32>' is not an input of the loss of that name and type}}
func.func @prepare_step(%v: tensor<2x4xi32> {graph.input = "tokens"}) -> (tensor<2x4xi32> {graph.output = "loads"}) attributes {graph.program = #graph.program<prepare_step>} {
  return %v : tensor<2x4xi32>
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

// expected-error @+1 {{parameter 'w' is not frozen, but finish_step gives its next value}}
func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, 
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %n: tensor<4xf32> {graph.input = "loads"},
                     %c: tensor<f32> {graph.input = "cotangent"}, %d: tensor<f32> {graph.input = "cotangent.penalty"})
    -> (tensor<f32>, tensor<f32> {graph.output = "penalty"}, tensor<4xf32> {graph.output = "sums", graph.metric}, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  %1 = graph.broadcast %d dims [] : tensor<f32> -> tensor<8xf32>
  %2 = graph.add %0, %1 : tensor<8xf32>
  return %c, %d, %n, %2 : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<8xf32>
}
func.func @finish_step(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<finish_step>} {
  return %w : tensor<8xf32>
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  return %w : tensor<8xf32>
}

// -----

// expected-error @+1 {{parameter 'b' is frozen, and finish_step gives only others' next values}}
func.func @gradients(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %a: tensor<4xf32> {graph.state = "a", graph.role = #graph<role parameter>, graph.frozen}, %b: tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>, graph.frozen},
                     %t: tensor<2x4xi32> {graph.input = "tokens"}, %u: tensor<2x4xi32> {graph.input = "targets"}, %s: tensor<i64> {graph.input = "seed"},
                     %p: tensor<i64> {graph.input = "step"}, %o: tensor<i64> {graph.input = "offset"}, %c: tensor<f32> {graph.input = "cotangent"})
    -> (tensor<f32>, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %0 = graph.broadcast %c dims [] : tensor<f32> -> tensor<8xf32>
  return %c, %0 : tensor<f32>, tensor<8xf32>
}
func.func @finish_step(%a: tensor<4xf32> {graph.state = "a", graph.role = #graph<role parameter>}) -> (tensor<4xf32> {graph.state = "a", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<finish_step>} {
  return %a : tensor<4xf32>
}
func.func @init() -> (tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<4xf32> {graph.state = "a", graph.role = #graph<role parameter>}, tensor<4xf32> {graph.state = "b", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<1.0> : tensor<8xf32>
  %b = graph.constant dense<0.0> : tensor<4xf32>
  return %w, %b, %b : tensor<8xf32>, tensor<4xf32>, tensor<4xf32>
}
