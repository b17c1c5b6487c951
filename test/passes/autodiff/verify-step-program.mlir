// RUN: tessera-opt %s --split-input-file --verify-diagnostics --verify-step-program
// A complete module, then one case for each branch of the verifier.

func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<1xi64> {graph.state = "step", graph.role = #graph<role counter>},
                      tensor<16xf32> {graph.state = "hyper", graph.role = #graph<role counter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<0.0> : tensor<2xf32>
  %s = graph.constant dense<0> : tensor<1xi64>
  %h = graph.constant dense<0.0> : tensor<16xf32>
  return %w, %s, %h : tensor<2xf32>, tensor<1xi64>, tensor<16xf32>
}
func.func @train_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %s: tensor<1xi64> {graph.state = "step", graph.role = #graph<role counter>},
                      %h: tensor<16xf32> {graph.state = "hyper", graph.role = #graph<role counter>})
    -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<1xi64> {graph.state = "step", graph.role = #graph<role counter>},
        tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<train_step>} {
  %f = graph.constant dense<0.0> : tensor<f32>
  %n = graph.constant dense<0> : tensor<i64>
  return %w, %s, %f, %f, %f, %n : tensor<2xf32>, tensor<1xi64>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>
}

// -----

module {
  // expected-error @+1 {{is left: no step program was made of it}}
  func.func private @loss() -> tensor<f32> attributes {graph.program = #graph.program<loss>}
}

// -----

module {
  // expected-error @+1 {{is left: no step program was made of it}}
  func.func private @gradients() -> tensor<f32> attributes {graph.program = #graph.program<gradients>}
}

// -----

// expected-error @+1 {{has no program 'init' with a body; importing a model makes it}}
module {
}

// -----

// expected-error @+1 {{has no program 'train_step' with a body; build-train-step makes it}}
module {
  func.func @init() attributes {graph.program = #graph.program<init>} {
    return
  }
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{state 'w' has no graph.role}}
func.func @train_step(%w: tensor<2xf32> {graph.state = "w"}) attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<0.0> : tensor<2xf32>
  return %w : tensor<2xf32>
}
// expected-error @+1 {{state 'w' is 'tensor<3xf32>' here and 'tensor<2xf32>' elsewhere}}
func.func @train_step(%w: tensor<3xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<0.0> : tensor<2xf32>
  return %w : tensor<2xf32>
}
// expected-error @+1 {{state 'w' has the role counter here and parameter elsewhere}}
func.func @train_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role counter>}) attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

// expected-error @+1 {{returns state 'w' twice}}
func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<0.0> : tensor<2xf32>
  return %w, %w : tensor<2xf32>, tensor<2xf32>
}
func.func @train_step() attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{returns state 'w' without taking it}}
func.func @train_step() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<train_step>} {
  %w = graph.constant dense<0.0> : tensor<2xf32>
  return %w : tensor<2xf32>
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{takes state 'w' and does not return it}}
func.func @train_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{takes state 'step' and does not return it}}
func.func @train_step(%s: tensor<1xi64> {graph.state = "step", graph.role = #graph<role counter>}) attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{result 0 is neither state nor output}}
func.func @train_step() -> tensor<f32> attributes {graph.program = #graph.program<train_step>} {
  %f = graph.constant dense<0.0> : tensor<f32>
  return %f : tensor<f32>
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{has an unexpected output 'loss' of type 'tensor<bf16>'}}
func.func @train_step() -> (tensor<bf16> {graph.output = "loss"}) attributes {graph.program = #graph.program<train_step>} {
  %f = graph.constant dense<0.0> : tensor<bf16>
  return %f : tensor<bf16>
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{has no output 'grad_norm'}}
func.func @train_step() -> (tensor<f32> {graph.output = "loss"}) attributes {graph.program = #graph.program<train_step>} {
  %f = graph.constant dense<0.0> : tensor<f32>
  return %f : tensor<f32>
}

// -----

// expected-error @+1 {{does not give state 'hyper', which 'train_step' takes}}
func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
func.func @train_step(%h: tensor<16xf32> {graph.state = "hyper", graph.role = #graph<role counter>})
    -> (tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<train_step>} {
  %f = graph.constant dense<0.0> : tensor<f32>
  %n = graph.constant dense<0> : tensor<i64>
  return %f, %f, %f, %n : tensor<f32>, tensor<f32>, tensor<f32>, tensor<i64>
}

// -----

func.func @init() attributes {graph.program = #graph.program<init>} {
  return
}
// expected-error @+1 {{state 'c' is a cache, of which training knows nothing}}
func.func @train_step(%c: tensor<2xf32> {graph.state = "c", graph.role = #graph<role cache>}) attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

// expected-error @+1 {{has no program 'optimizer_step' with a body; build-train-step makes it}}
module {
  func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w : tensor<2xf32>
  }
  func.func @forward_backward(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) -> (tensor<f32> {graph.output = "loss"}) attributes {graph.program = #graph.program<forward_backward>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    return %f : tensor<f32>
  }
}

// -----

module {
  func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>},
                        tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w, %w : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
  func.func @forward_backward(%b: tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "terms"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<forward_backward>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    %n = graph.constant dense<0> : tensor<i64>
    return %g, %f, %f, %n : tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<i64>
  }
  func.func @optimizer_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}) attributes {graph.program = #graph.program<optimizer_step>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    return %w, %g, %f, %f : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>
  }
  func.func @init_trained() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init_trained>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w : tensor<2xf32>, tensor<2xf32>
  }
}

// -----

module {
  func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>},
                        tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w, %w : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
  // expected-error @+1 {{has no output 'terms'}}
  func.func @forward_backward(%b: tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "loss"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<forward_backward>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    %n = graph.constant dense<0> : tensor<i64>
    return %g, %f, %n : tensor<2xf32>, tensor<f32>, tensor<i64>
  }
  func.func @optimizer_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}) attributes {graph.program = #graph.program<optimizer_step>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    return %w, %g, %f, %f : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>
  }
  func.func @init_trained() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init_trained>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w : tensor<2xf32>, tensor<2xf32>
  }
}

// -----

module {
  func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>},
                        tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w, %w : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
  func.func @forward_backward(%b: tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "terms"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<forward_backward>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    %n = graph.constant dense<0> : tensor<i64>
    return %g, %f, %f, %n : tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<i64>
  }
  func.func @optimizer_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}) attributes {graph.program = #graph.program<optimizer_step>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    return %w, %g, %f, %f : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>
  }
  // expected-error @+1 {{gives state 'b', which no step changes}}
  func.func @init_trained() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init_trained>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w, %w : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
}

// -----

module {
  func.func @init() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>},
                        tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}) attributes {graph.program = #graph.program<init>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w, %w, %w : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
  func.func @forward_backward(%b: tensor<2xf32> {graph.state = "b", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "terms"}, tensor<i64> {graph.output = "tokens"}) attributes {graph.program = #graph.program<forward_backward>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    %n = graph.constant dense<0> : tensor<i64>
    return %g, %f, %f, %n : tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<i64>
  }
  func.func @optimizer_step(%w: tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, %g: tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>})
      -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}, tensor<2xf32> {graph.state = "w.gradient", graph.role = #graph<role optimizer>}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}) attributes {graph.program = #graph.program<optimizer_step>} {
    %f = graph.constant dense<0.0> : tensor<f32>
    return %w, %g, %f, %f : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>
  }
  // expected-error @+1 {{does not give state 'w.gradient', which a step changes}}
  func.func @init_trained() -> (tensor<2xf32> {graph.state = "w", graph.role = #graph<role parameter>}) attributes {graph.program = #graph.program<init_trained>} {
    %w = graph.constant dense<0.0> : tensor<2xf32>
    return %w : tensor<2xf32>
  }
}
