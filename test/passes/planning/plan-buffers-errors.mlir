// RUN: tessera-opt %s --split-input-file --plan-buffers --verify-diagnostics

//===--- functions --------------------------------------------------------===//

// expected-error@+1 {{expects a body of one block}}
func.func private @declared(tensor<4xf32>)

// -----

// expected-error@+1 {{has values that are not tensors}}
func.func @scalar(%x: f32 {graph.state = "x", graph.role = #graph<role parameter>}) {
  return
}

// -----

// expected-error@+1 {{argument 1 is neither state (graph.state) nor input (graph.input)}}
func.func @argument(%x: tensor<4xf32> {graph.input = "x"}, %y: tensor<4xf32>) {
  return
}

// -----

// expected-error@+1 {{result 0 is neither state nor output}}
func.func @result(%x: tensor<4xf32> {graph.input = "x"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{state "w" has no graph.role}}
func.func @role(%w: tensor<4xf32> {graph.state = "w"}) {
  return
}

// -----

func.func @init(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
  return
}
// expected-error@+1 {{state "w" is 'tensor<8xf32>' here and 'tensor<4xf32>' elsewhere}}
func.func @step(%w: tensor<8xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
  return
}

// -----

// To return one state as another is to lose the other.
// expected-error@+1 {{result 0 returns state "v" under another name}}
func.func @renamed(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>},
                   %v: tensor<4xf32> {graph.state = "v", graph.role = #graph<role parameter>})
    -> (tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
  return %v : tensor<4xf32>
}

// -----

//===--- operations -------------------------------------------------------===//

func.func @not_tiled(%x: tensor<4xf32> {graph.input = "x"}) -> (tensor<4xf32> {graph.output = "y"}) {
  // expected-error@+1 {{cannot be planned: only launches, loops, collectives, contiguous views and tables of rows have locations}}
  %y = graph.neg %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @gaps(%x: tensor<4x4xf32> {graph.input = "x"}) -> (tensor<4x2xf32> {graph.output = "y"}) {
  // expected-error@+1 {{cannot be planned: only launches, loops, collectives, contiguous views and tables of rows have locations}}
  %y = graph.slice %x [0, 0] : tensor<4x4xf32> -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// -----

func.func @view_of_constant() -> (tensor<2x2xf32> {graph.output = "y"}) {
  %zero = graph.constant dense<0.0> : tensor<4xf32>
  // expected-error@+1 {{is a view of a constant or of an induction variable, which have no location; fold it}}
  %y = graph.reshape %zero : tensor<4xf32> -> tensor<2x2xf32>
  return %y : tensor<2x2xf32>
}

// -----

func.func @constant() -> (tensor<4xf32> {graph.output = "y"}) {
  %one = graph.constant dense<1.0> : tensor<4xf32>
  // expected-error@+1 {{requires a constant that is not zero, which only kernels can write}}
  return %one : tensor<4xf32>
}

// -----

func.func @no_kernel(%x: tensor<4xf32> {graph.input = "x"}) {
  // expected-error@+1 {{launches @missing, which no target defines}}
  tile.launch @missing(%x) blocks [1] sizes [] : (tensor<4xf32>) -> ()
  return
}

// -----

module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @k(%block: index, %x: memref<4xf32>, %z: memref<4xf32>)
      attributes {skeleton = #tile<skeleton elementwise>, summary = "",
                  access = [#tile<access read>, #tile<access write>]} {
    tile.return
  }
}
func.func @no_operand() -> (tensor<4xf32> {graph.output = "y"}) {
  // expected-error@+1 {{operands and results do not match kernel @k}}
  %y = tile.launch @k() blocks [1] sizes [] : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @k(%block: index, %x: memref<4xf32>, %z: memref<4xf32>)
      attributes {skeleton = #tile<skeleton elementwise>, summary = "",
                  access = [#tile<access read>, #tile<access read_write>]} {
    tile.return
  }
}
func.func @no_result(%x: tensor<4xf32> {graph.input = "x"}) {
  // expected-error@+1 {{operands and results do not match kernel @k}}
  tile.launch @k(%x, %x) blocks [1] sizes [] : (tensor<4xf32>, tensor<4xf32>) -> ()
  return
}

// -----

//===--- loops ------------------------------------------------------------===//

// An index that is no induction value is known at run time only.
func.func @dynamic_slice(%x: tensor<4x8xf32> {graph.input = "x"}, %i: tensor<i32> {graph.input = "i"})
    -> (tensor<8xf32> {graph.output = "y"}) {
  // expected-error@+1 {{index must be the induction value of a graph.loop}}
  %y = graph.dynamic_slice %x[%i] : tensor<4x8xf32>, tensor<i32> -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

func.func @dynamic_update(%x: tensor<4x8xf32> {graph.input = "x"}, %u: tensor<8xf32> {graph.input = "u"},
                          %i: tensor<i32> {graph.input = "i"}) -> (tensor<4x8xf32> {graph.output = "y"}) {
  // expected-error@+1 {{index must be the induction value of a graph.loop}}
  %y = graph.dynamic_update %u into %x[%i] : tensor<8xf32>, tensor<i32> -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// A carried value is no induction value either.
func.func @carried_index(%x: tensor<4x8xf32> {graph.input = "x"}, %i: tensor<i32> {graph.input = "i"}) {
  %r = graph.loop 4 (%j, %k = %i) : (tensor<i32>) {
    // expected-error@+1 {{index must be the induction value of a graph.loop}}
    %y = graph.dynamic_slice %x[%k] : tensor<4x8xf32>, tensor<i32> -> tensor<8xf32>
    graph.yield %k : tensor<i32>
  }
  return
}

// -----

module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @use(%block: index, %x: memref<i32>)
      attributes {skeleton = #tile<skeleton elementwise>, summary = "", access = [#tile<access read>]} {
    tile.return
  }
}
func.func @read_induction(%x: tensor<i32> {graph.input = "x"}) {
  %r = graph.loop 4 (%i, %k = %x) : (tensor<i32>) {
    // expected-error@+1 {{reads an induction variable, which has no location; run materialize-induction-variables}}
    tile.launch @use(%i) blocks [1] sizes [] : (tensor<i32>) -> ()
    graph.yield %k : tensor<i32>
  }
  return
}

// -----

module @cpu attributes {tile.target = "cpu:avx2"} {
  tile.kernel @add(%block: index, %x: memref<i32>)
      attributes {skeleton = #tile<skeleton elementwise>, summary = "", access = [#tile<access read_write>]} {
    tile.return
  }
}
func.func @overwrite_induction(%x: tensor<i32> {graph.input = "x"}) {
  %r = graph.loop 4 (%i, %k = %x) : (tensor<i32>) {
    // expected-error@+1 {{reads an induction variable, which has no location; run materialize-induction-variables}}
    %n = tile.launch @add(%i) blocks [1] sizes [] : (tensor<i32>) -> tensor<i32>
    graph.yield %n : tensor<i32>
  }
  return
}

// -----

func.func @carry_induction(%x: tensor<i32> {graph.input = "x"}) {
  %r = graph.loop 4 (%i, %k = %x) : (tensor<i32>) {
    // expected-error@+1 {{reads an induction variable, which has no location; run materialize-induction-variables}}
    graph.yield %i : tensor<i32>
  }
  return
}

// -----

func.func @start_from_induction(%x: tensor<i32> {graph.input = "x"}) {
  %r = graph.loop 4 (%i, %k = %x) : (tensor<i32>) {
    // expected-error@+1 {{reads an induction variable, which has no location; run materialize-induction-variables}}
    %s = graph.loop 4 (%j, %l = %i) : (tensor<i32>) {
      graph.yield %l : tensor<i32>
    }
    graph.yield %s : tensor<i32>
  }
  return
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @dimension(%x: tensor<4x8xf32> {graph.input = "x"}) -> (tensor<4x16xf32> {graph.output = "y"}) {
    // expected-error@+1 {{runs along dimension 1 of 'tensor<4x8xf32>'; buffers are dense, transpose it to the front}}
    %y = dist.all_gather %x dim 1 over @mesh [#dist.axis_ref<"data">] : tensor<4x8xf32> -> tensor<4x16xf32>
    return %y : tensor<4x16xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 4>]
  func.func @part(%x: tensor<4xf32> {graph.input = "x"}) -> (tensor<4xf32> {graph.output = "y"}) {
    // expected-error@+1 {{runs along a part of the axis 'data'; give the mesh an axis for each part}}
    %y = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data":(2)2>] : tensor<4xf32> -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @forgotten(%x: tensor<4xf32> {graph.input = "x"}) -> (tensor<4xf32> {graph.output = "y"}) {
    // expected-error@+1 {{is started, but not waited for once in the block where it starts}}
    %t = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> !dist.pending<tensor<4xf32>>
    return %x : tensor<4xf32>
  }
}

// -----

module {
  dist.mesh @mesh [#dist.axis<"data" = 2>]
  func.func @a(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>, dist.sharding = #dist.sharding<@mesh, [{"data"}]>, dist.global_shape = array<i64: 8>}) {
    return
  }
  // expected-error@+1 {{state "w" is sharded differently elsewhere}}
  func.func @b(%w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
    return
  }
}
