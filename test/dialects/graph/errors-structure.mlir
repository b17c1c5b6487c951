// RUN: tessera-opt %s --split-input-file --verify-diagnostics
// One case for each branch of the verifiers of loops, clusters and the attributes of functions.

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.loop' op expects a trip count of at least 1, got 0}}
  %0 = "graph.loop"(%x) <{trip = 0 : i64}> ({
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.loop' op failed to verify that all of {inits, results} have same type}}
  %0 = "graph.loop"(%x) <{trip = 2 : i64}> ({
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<5xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.loop' op expects body arguments ('tensor<i32>', 'tensor<4xf32>'), got ('tensor<4xf32>')}}
  %0 = "graph.loop"(%x) <{trip = 2 : i64}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.loop' op yields () where ('tensor<4xf32>') is expected}}
  %0 = "graph.loop"(%x) <{trip = 2 : i64}> ({
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    "graph.yield"() : () -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.loop' op expects its body to end in graph.yield}}
  %0 = "graph.loop"(%x) <{trip = 2 : i64}> ({
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    "func.return"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.loop' op expects its body to end in graph.yield}}
  %0 = "graph.loop"(%x) <{trip = 2 : i64}> ({
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    %b = graph.neg %a : tensor<4xf32>
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{expected one type for each carried value}}
  %0 = graph.loop 2 (%i, %a = %x) : () {
    graph.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op expects a name}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = ""}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op expects body arguments ('tensor<4xf32>'), got ('tensor<5xf32>')}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c"}> ({
  ^bb0(%a: tensor<5xf32>):
    "graph.yield"(%a) : (tensor<5xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<5xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op cannot hold 'arith.addf'; a cluster has graph ops only, without regions}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c"}> ({
  ^bb0(%a: tensor<4xf32>):
    %b = "arith.addf"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op cannot hold 'graph.loop'}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c"}> ({
  ^bb0(%a: tensor<4xf32>):
    graph.loop 2 (%i) : () {
      graph.yield
    }
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op expects its body to end in graph.yield}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c"}> ({
  ^bb0(%a: tensor<4xf32>):
    %b = graph.neg %a : tensor<4xf32>
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op yields ('tensor<4xf32>') where ('tensor<5xf32>') is expected}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c"}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<5xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op expects accumulates to be pairs of an input and an output}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c", accumulates = array<i64: 0>}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op accumulates pair (1, 0) is outside its inputs and outputs}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c", accumulates = array<i64: 1, 0>}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op accumulates pair (0, -1) is outside its inputs and outputs}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c", accumulates = array<i64: 0, -1>}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op accumulates pair (1, 0) joins different types}}
  %0 = "graph.cluster"(%x, %y) <{kind = #graph<cluster_kind elementwise>, name = "c", accumulates = array<i64: 1, 0>}> ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<5xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>, tensor<5xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{'graph.cluster' op accumulates pair (0, 0) names an input or output twice}}
  %0 = "graph.cluster"(%x) <{kind = #graph<cluster_kind elementwise>, name = "c", accumulates = array<i64: 0, 0, 0, 0>}> ({
  ^bb0(%a: tensor<4xf32>):
    "graph.yield"(%a) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> (tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{'graph.yield' op expects parent op to be one of 'graph.loop, graph.cluster'}}
  graph.yield %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{expects a name in 'graph.state'}}
func.func @f(%x: tensor<4xf32> {graph.state}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{expects a name in 'graph.input'}}
func.func @f(%x: tensor<4xf32> {graph.input = ""}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{expects a name in 'graph.output'}}
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32> {graph.output = 1 : i32}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{expects #graph<role ...> in 'graph.role'}}
func.func @f(%x: tensor<4xf32> {graph.role = "parameter"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{expects no value for 'graph.decay'}}
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32> {graph.decay = 1 : i32}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{does not know the attribute 'graph.colour' of an argument or result}}
func.func @f(%x: tensor<4xf32> {graph.colour}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{expects 'graph.program' on a func.func, a #graph.program<...>}}
func.func @init() attributes {graph.program = "init"} {
  return
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expects 'graph.in_flight' on a graph.loop whose number of iterations is fixed, an i64 from 1 to it}}
  %r = graph.loop 2 (%i, %a = %x) : (tensor<4xf32>) attributes {graph.in_flight = 3 : i64} {
    graph.yield %a : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expects 'graph.in_flight' on a graph.loop whose number of iterations is fixed, an i64 from 1 to it}}
  %y = graph.exp %x {graph.in_flight = 2 : i64} : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func private @layer()
func.func @f() {
  // expected-error @+1 {{expects 'graph.program' on a func.func, a #graph.program<...>}}
  call @layer() {graph.program = #graph.program<init>} : () -> ()
  return
}

// -----

// A second program of a kind would have the first one's name.
func.func @train_step() attributes {graph.program = #graph.program<train_step>} {
  return
}
// expected-error @+1 {{expects the name @train_step of a #graph.program<train_step>}}
func.func @train_step_2() attributes {graph.program = #graph.program<train_step>} {
  return
}

// -----

func.func @decode_8() attributes {graph.program = #graph.program<decode>} {
  return
}
// expected-error @+1 {{expects the name @decode_BUCKET of a #graph.program<decode>}}
func.func @decode() attributes {graph.program = #graph.program<decode>} {
  return
}

// -----

// expected-error @+1 {{expects 'graph.layer' on an op in a function, a #graph.layer<...>}}
func.func @f() attributes {graph.layer = #graph.layer<0>} {
  return
}

// -----

func.func private @layer()
func.func @f() {
  // expected-error @+1 {{expects 'graph.layer' on an op in a function, a #graph.layer<...>}}
  call @layer() {graph.layer = 0 : i64} : () -> ()
  return
}

// -----

// expected-error @+1 {{expects a layer in [0, 4096), got 4096}}
func.func @f(%x: tensor<4xf32> {graph.layer = #graph.layer<4096>}) {
  return
}

// -----

// expected-error @+1 {{expects #graph.layer<INDEX> in 'graph.layer'}}
func.func @f(%x: tensor<4xf32> {graph.layer = #graph.layer<0, backward>}) {
  return
}

// -----

// expected-error @+1 {{unknown attribute 'graph.conted' of 'func.func'}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {graph.conted} {
  return %x : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expects the number of iterations, 'tensor<i32>', to be its first carried value}}
  %r = graph.loop 2 (%i, %c = %x) : (tensor<4xf32>) attributes {counted} {
    graph.yield %c : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{attribute 'overflow' failed to satisfy constraint: unit attribute}}
  %r = graph.loop 2 (%i, %c = %x) : (tensor<4xf32>) attributes {overflow = 3} {
    graph.yield %c : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

func.func @f(%n: tensor<i32>) -> tensor<i32> {
  // expected-error @+1 {{expects to be `counted` or `overflow`, not both}}
  %r = graph.loop 2 (%i, %c = %n) : (tensor<i32>) attributes {counted, overflow} {
    graph.yield %c : tensor<i32>
  }
  return %r : tensor<i32>
}

// -----

func.func @f(%n: tensor<i32>) -> tensor<i32> {
  // expected-error @+1 {{has no attribute "conted"}}
  %r = graph.loop 2 (%i, %c = %n) : (tensor<i32>) attributes {conted} {
    graph.yield %c : tensor<i32>
  }
  return %r : tensor<i32>
}
