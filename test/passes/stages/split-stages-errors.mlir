// RUN: tessera-opt %s --split-stages --split-input-file --verify-diagnostics

// A stage that needs what comes after it.
module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = call @layer(%x) {dist.forward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  // expected-error@+1 {{is the forward of stage 0, but needs a value that stage 1 computes after that}}
  %z = call @layer(%y) {dist.forward_stage = 0 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %z : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @eval_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{is of stage 2, but the schedule has 2}}
  %y = call @layer(%x) {dist.forward_stage = 2 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

// expected-error@+1 {{schedule: it is for 3 ranks, but the mesh has no axis pipe of that size}}
module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A2F0,2B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
}

// -----

module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{runs 2 microbatches, but the schedule has 1}}
  %y = graph.loop 2 (%i, %a = %x) : (tensor<2xf32>) {
    %z = func.call @layer(%a) {dist.forward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
    graph.yield %z : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

// What goes from one microbatch to the next is a sum.
module attributes {dist.schedule = "0F0,0F1,0B0,0B1\0A1F0,1F1,1B0,1B1\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{carries value 0, which is not a sum over microbatches}}
  %y = graph.loop 2 (%i, %a = %x) : (tensor<2xf32>) {
    %z = func.call @layer(%a) {dist.forward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
    graph.yield %z : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

// expected-error@+1 {{'dist.pipeline' must be on a module and have 'schedule', and the work of its stages as 'forward', 'backward' and 'weights'}}
module attributes {dist.pipeline = {schedule = "", forward = array<i64: 1, 2>, backward = array<i64: 1>, weights = array<i64: 0, 0>}} {
}

// -----

// expected-error@+1 {{'dist.pipeline' must be on a module and have 'schedule'}}
module attributes {dist.pipeline = {schedule = "", forward = array<i64: 1>, backward = array<i64: -1>, weights = array<i64: 0>}} {
}

// -----

// expected-error@+1 {{'dist.schedule' must be on a module or a graph.loop: a pipeline schedule as CSV}}
module attributes {dist.schedule = 3 : i64} {
}

// -----

// expected-error@+1 {{'dist.schedule' must be on a module or a graph.loop: a pipeline schedule as CSV}}
func.func private @layer(tensor<2xf32>) -> tensor<2xf32> attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"}

// -----

// expected-error@+1 {{'before' lists the same for earlier loops}}
module attributes {dist.pipeline = {schedule = "", forward = array<i64: 1>, backward = array<i64: 1>, weights = array<i64: 0>, before = [{schedule = "", forward = array<i64: 1, 2>, backward = array<i64: 1>, weights = array<i64: 0>}]}} {
}

// -----

// expected-error@+1 {{schedule: has only forwards, which is for loops before the step's}}
module attributes {dist.schedule = "# tessera-schedule pass=forward\0A0F0\0A1F0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
}

// -----

module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{schedule: its stages are on other ranks than those of the module's schedule}}
  %y = graph.loop 1 (%i, %a = %x) : (tensor<2xf32>) attributes {dist.schedule = "# tessera-schedule pass=forward\0A1F0\0A0F0\0A"} {
    %z = func.call @layer(%a) {dist.forward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
    graph.yield %z : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = graph.constant dense<0.0> : tensor<2xf32>
  %y = graph.loop 1 (%i, %a = %zero) : (tensor<2xf32>) attributes {dist.schedule = "# tessera-schedule pass=forward\0A0F0\0A1F0\0A"} {
    // expected-error@+1 {{is a backward in a loop whose schedule has only forwards}}
    %z = func.call @layer(%x) {dist.backward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
    %b = graph.add %a, %z : tensor<2xf32>
    graph.yield %b : tensor<2xf32>
  }
  return %y : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = graph.constant dense<0.0> : tensor<2xf32>
  %y = graph.loop 1 (%i, %a = %zero) : (tensor<2xf32>) {
    %z = func.call @layer(%x) {dist.backward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
    %b = graph.add %a, %z : tensor<2xf32>
    graph.yield %b : tensor<2xf32>
  }
  // expected-error@+1 {{the blocks of @train_step are in several locations; expected one loop with backwards, and before it only loops without}}
  %t = func.call @layer(%y) {dist.forward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %t : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

module attributes {dist.schedule = "0F0,0B0\0A1F0,1B0\0A"} {
dist.mesh @mesh [#dist.axis<"pipe" = 2>]
func.func @train_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{is a backward outside of a loop over microbatches}}
  %t = func.call @layer(%x) {dist.backward_stage = 1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %t : tensor<2xf32>
}
func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
}

// -----

func.func private @layer(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func @eval_step(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{'dist.forward_stage' must be a stage number}}
  %y = call @layer(%x) {dist.forward_stage = -1 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
